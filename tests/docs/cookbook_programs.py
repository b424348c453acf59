"""What uses the recipes of docs/cookbook.md: ``python -m tests.docs.cookbook_programs NAME``.

Each runs in a project that has the recipe, and prints what it has found. ``LOCKED`` in the
environment is empty where the recipe is one without its lock: then two are to meet. With ``AWAY``
there is no Redis for the locks.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import django
from django.db import connection, connections

from tests.support.stage import Caller, begun, diary, eventually, go_on, most, outcome

if TYPE_CHECKING:
    from collections.abc import Callable

AWAY = "AWAY" in os.environ
LOCKED = bool(os.environ.get("LOCKED"))


def of_shop(name: str) -> Any:
    """Return what a module of the project has by that dotted name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"shop.{module}"), attribute)


def started(call: Callable[[], Any], count: int = 1) -> list[Caller]:
    """Have so many processes make the call."""
    connections.close_all()
    return [Caller(call) for _ in range(count)]


def at_work(call: Callable[[], Any], count: int = 1) -> list[Caller]:
    """The same, when all of them are at work."""
    callers = started(call, count)
    eventually(lambda: begun() >= count)
    return callers


def ends(callers: list[Caller]) -> list[Any]:
    return [caller.end() for caller in callers]


def waiting(key: str, count: int = 1) -> None:
    """Return when so many wait for the lock."""
    inspector: Any = importlib.import_module("django_setnx_lock").inspector
    eventually(lambda: inspector().get(f"lock:{key}").waiting >= count)


def make_tables(*models: str) -> None:
    with connection.schema_editor() as editor:
        for model in models:
            editor.create_model(of_shop(f"models.{model}"))


def post(path: str, body: str = "") -> int:
    """Post to the site, as somebody else does, and return the status."""
    client = importlib.import_module("django.test").Client(raise_request_exception=False)
    answer = client.post(path, body, content_type="application/json")
    return int(answer.status_code)


def webhook() -> Any:
    make_tables("Event")

    def deliver() -> int:
        return post("/webhook/", '{"id": "evt_1"}')

    if AWAY:
        return deliver()
    if not LOCKED:
        return sorted(ends(started(deliver, 2))), most(), begun()
    first = at_work(deliver)
    meanwhile = deliver()
    go_on()
    return [*ends(first), meanwhile, deliver()], most(), begun()


def exports() -> Any:
    def export() -> int:
        return post("/export/")

    if AWAY:
        return export()
    if not LOCKED:
        return ends(started(export, 4)), most(), begun()
    first = at_work(export, 3)
    meanwhile = export()
    go_on()
    return [*ends(first), meanwhile, export()], most(), begun()


def leader() -> Any:
    lead = of_shop("leader.lead")
    if AWAY:
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 2:
                raise KeyboardInterrupt

        with patch("time.sleep", sleep), suppress(KeyboardInterrupt):
            lead()
        return slept
    if not LOCKED:
        started(lead, 2)
        eventually(lambda: most() == 2)
        return most(), True
    go_on()
    leading = {caller.pid: caller for caller in started(lead, 3)}

    def leaders() -> list[int]:
        return [int(pid) for pid in diary.lrange("leaders", 0, -1)]

    eventually(lambda: len(set(leaders())) == 3)
    killed = leaders()[-1]
    leading[killed].kill()
    # It may have been at work.
    diary.srem("at work", killed)
    before = len(leaders())
    eventually(lambda: len(set(leaders()[before:])) == 2)
    return most(), killed not in leaders()[before + 1 :]


def payment() -> Any:
    make_tables("Order")
    order, pay = of_shop("models.Order").objects.create(), of_shop("payments.pay")

    if AWAY:
        return outcome(lambda: pay(order.pk))
    (late,) = started(lambda: pay(order.pk))
    os.waitpid(late.pid, os.WUNTRACED)
    # The other one waits for the lease of the one that stands still.
    (second,) = started(lambda: pay(order.pk))
    paid = second.end()
    order.refresh_from_db()
    receipt = order.receipt
    os.kill(late.pid, signal.SIGCONT)
    refused = late.end()
    order.refresh_from_db()
    return [refused, paid, order.receipt == receipt], diary.scard("charges")


def rate() -> Any:
    ask_in_turn = of_shop("carrier.ask_in_turn")
    if AWAY:
        return outcome(lambda: ask_in_turn(1))
    signals: Any = importlib.import_module("django_setnx_lock.signals")

    def note(fence: int, **about: Any) -> None:
        diary.rpush("turns", fence)

    signals.lock_acquired.connect(note)
    ends(started(lambda: [ask_in_turn(number) for number in range(3)], 2))
    times = sorted(map(int, diary.lrange("turns" if LOCKED else "asked", 0, -1)))
    pauses = [later - sooner for sooner, later in itertools.pairwise(times)]
    return len(times), diary.llen("asked"), min(pauses) / 1e6


def search_index() -> Any:
    rebuild = of_shop("search.rebuild")

    if AWAY:
        return outcome(rebuild)

    def change() -> None:
        diary.incr("changes")
        rebuild()

    if not LOCKED:
        return ends(started(change, 2)), most(), begun(), True
    first = at_work(change)
    second = started(change)
    waiting("index")
    # It does not wait.
    change()
    go_on()
    found = ends([*first, *second])
    return found, most(), begun(), diary.get("index") == diary.get("changes")


def celery_beat() -> Any:
    report = of_shop("tasks.report")
    if AWAY:
        return type(report.apply().result).__name__
    command = (sys.executable, "-m", "celery", "-A", "shop.celery", "worker", "--concurrency=2")
    options = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
    subprocess.Popen([*command, *options], stdout=sys.stderr)

    def state(result: Any) -> str:
        with suppress(Exception):
            result.get(timeout=40)
        return str(result.state)

    # Of two hosts at the same tick.
    first = report.delay()
    eventually(lambda: begun() == 1)
    second = report.delay()
    if not LOCKED:
        return [state(first), state(second)], most(), begun()
    meanwhile = state(second)
    go_on()
    # The last is of a host whose clock is late.
    return [state(first), meanwhile, state(report.delay())], most(), begun()


class Editor:
    """Somebody who has the form of an order open."""

    def __init__(self, name: str, order: Any) -> None:
        browser: Any = importlib.import_module("example_project.tour.browser")
        test: Any = importlib.import_module("django.test")
        auth: Any = importlib.import_module("django.contrib.auth")
        self._client = test.Client()
        user, _ = auth.get_user_model().objects.get_or_create(
            username=name, defaults={"is_staff": True, "is_superuser": True}
        )
        self._client.force_login(user)
        self._url = f"/admin/shop/order/{order.pk}/change/"
        answer = self._client.get(self._url)
        text = answer.content.decode()
        page = browser.Page(browser.Answer(status=200, url=self._url, text=text, seconds=0))
        self.text = page.text
        self._fields: dict[str, str] = next(
            (form for _, form in page.forms if "number" in form), {}
        )

    @property
    def can_edit(self) -> bool:
        return bool(self._fields)

    def save(self, number: str) -> int:
        """Send the form with that number; the status is 302 if it was saved."""
        fields = {**self._fields, "number": number, "_save": "Save"}
        return int(self._client.post(self._url, fields).status_code)


def editing_form() -> Any:
    call_command: Any = importlib.import_module("django.core.management").call_command
    call_command("migrate", run_syncdb=True, verbosity=0)
    order = of_shop("models.Order").objects.create(number="1")

    if AWAY:
        ann = Editor("ann", order)
        return ann.can_edit, "lock" in ann.text, ann.save("2")
    ann, bob = Editor("ann", order), Editor("bob", order)
    could_edit, told = bob.can_edit, "ann" in bob.text
    saved = [ann.save("of ann"), bob.save("of bob")]
    order.refresh_from_db()
    kept = order.number
    bob = Editor("bob", order)
    return could_edit, told, saved[0], kept, bob.save("of bob")


if __name__ == "__main__":
    signal.alarm(45)
    django.setup()
    sys.stdout.write(f"\nfound {json.dumps(globals()[sys.argv[1]]())}\n")
    sys.stdout.flush()
    os.killpg(0, signal.SIGKILL)
