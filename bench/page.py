"""Time the page of all locks beside Django's own list of users: ``python -m bench.page``.

Redis has 100,000 locks and 200,000 other keys, the database 100,000 users, in lists of 100. Each
address is asked for in turn with Django's list. Redis is asked which of its calls were long.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import django
from django.core.management import call_command

from bench.address import URL_VARIABLE, private_server
from example_project.server import connect

if TYPE_CHECKING:
    from django.test import Client
    from redis import Redis

LOCKS, OTHERS, USERS, ROUNDS = 100_000, 200_000, 100_000, 31
USERS_AT = "/admin/auth/user/"
LOCKS_AT = "/admin/django_setnx_lock/lock/"
QUESTIONS = {
    "worst first": "",
    "by key": "?o=key",
    "the second page": "?p=2",
    "held": "?state=held",
    "who wait": "?state=waiting",
    "a key": "?q=order:77777",
    "part of a key": "?q=777",
    "nobody": "?q=nothing-like-it",
}


def fill(client: Redis) -> None:
    """Write locks as they are taken, for an hour, and other keys."""
    now = int(client.time()[0])
    record = '{"host":"web1","pid":7,"thread":"MainThread","lease":3600,"user":"ann"}'
    for begin in range(0, LOCKS, 1000):
        with client.pipeline(transaction=False) as pipe:
            for number in range(begin, begin + 1000):
                name, token = f"lock:order:{number}", f"{number:032x}"
                pipe.set(name, token, px=3_600_000)
                meta = f"{now * 1_000_000 + number} {token} {record}"
                pipe.set(f"{{{name}}}:meta", meta, px=7_200_000)
                pipe.zadd("{lock:}:index", {name: now * 1000 + 3_600_000})
            pipe.execute()
    for begin in range(0, OTHERS, 10_000):
        client.mset({f"session:{number}": "x" * 64 for number in range(begin, begin + 10_000)})


def timed(visitor: Client, address: str) -> float:
    """Return the seconds that an answer takes."""
    begin = time.perf_counter()
    answer = visitor.get(address)
    took = time.perf_counter() - begin
    is_found = "nothing" not in address and "waiting" not in address
    if answer.status_code != 200 or (b">order:" in answer.content) != is_found:
        raise RuntimeError(f"{address} was answered by what was not asked for")
    return took


def measure(client: Redis) -> bool:
    """Print the medians; return whether all bars are met."""
    from django.contrib.auth.admin import UserAdmin
    from django.contrib.auth.models import User
    from django.test import Client

    call_command("migrate", verbosity=0)
    admin = User.objects.create_superuser("admin", password="admin")  # noqa: S106 - in memory
    User.objects.bulk_create((User(username=f"u{number}") for number in range(USERS)), 500)
    UserAdmin.list_per_page = 100
    fill(client)
    visitor = Client()
    visitor.force_login(admin)
    config: Any = client
    config.config_set("slowlog-log-slower-than", 0)
    timed(visitor, LOCKS_AT)
    visitor.get(USERS_AT)
    config.slowlog_reset()
    times: dict[str, list[float]] = {name: [] for name in QUESTIONS}
    beside: list[float] = []
    slowest = 0.0
    for _ in range(ROUNDS):
        for name, question in QUESTIONS.items():
            times[name].append(timed(visitor, LOCKS_AT + question))
            entries = config.slowlog_get(128)
            slowest = max([slowest, *(entry["duration"] / 1000 for entry in entries)])
            config.slowlog_reset()
        begin = time.perf_counter()
        visitor.get(USERS_AT)
        beside.append(time.perf_counter() - begin)
    theirs = median(beside)
    lines = [f"{'users, as Django lists them':30}{theirs * 1000:7.1f} ms"]
    for name, took in times.items():
        lines.append(f"{name:30}{median(took) * 1000:7.1f} ms{median(took) / theirs:7.2f}")
    lines.append(f"{'the longest call of Redis':30}{slowest:7.2f} ms")
    sys.stdout.write("\n".join(lines) + "\n")
    return slowest <= 2 and max(map(median, times.values())) <= 1.2 * theirs


def main() -> int:
    """Return the exit status: 0, 1 if a bar is missed."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"
    with private_server(None, tcp=False) as path:
        os.environ["REDIS_URL"] = os.environ[URL_VARIABLE]
        # Its settings are read once the server is there.
        shop: Any = importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
        shop.DATABASES["default"]["NAME"] = ":memory:"
        shop.ALLOWED_HOSTS, shop.SETNX_LOCK = ["testserver"], {"CACHE": "default"}
        django.setup()
        return 0 if measure(connect(Path(path))) else 1


if __name__ == "__main__":
    sys.exit(main())
