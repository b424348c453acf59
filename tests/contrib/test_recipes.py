"""The recipes of docs/tasks.md for other queues, each run with its library and its own worker."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.projects import Project

if TYPE_CHECKING:
    from tests.servers import RealServer

pytestmark = [pytest.mark.unmeasured, pytest.mark.real]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tasks.md").read_text()
RECIPES = dict(re.findall(r"### ([^\n]+)\n\n```python\n(.*?)```", PAGE, re.DOTALL))
SETTINGS = """
HUEY = {"huey_class": "huey.RedisHuey", "url": URL, "immediate": False}
Q_CLUSTER = {"redis": URL, "workers": 2, "timeout": 20, "retry": 30, "poll": 0.1}
"""
# What a recipe calls.
WORK = """
import time
import redis
from project_settings import URL

diary = redis.Redis.from_url(URL)

def work(what):
    diary.rpush("diary", f"{what} begins")
    time.sleep(0.3)
    diary.rpush("diary", f"{what} ends")

def deliver(invoice_id):
    work(invoice_id)

def make_report():
    work("report")

def told(count):
    give_up_at = time.monotonic() + 30
    while diary.llen("diary") < count and time.monotonic() < give_up_at:
        time.sleep(0.02)
    return [line.decode() for line in diary.lrange("diary", 0, -1)]
"""
BEGIN = """
import os
import django
django.setup()
from work import *
"""
# Workers that it has started end with it.
# Workers write there, too.
END = """
print("\\nfound", found, flush=True)
os.killpg(0, 9)
"""
TWICE = ["7 begins", "7 ends", "7 begins", "7 ends"]


class Recipe(NamedTuple):
    """How the recipe of a ``library`` is run.

    ``program``: what uses it, and says what it has found. ``before``: what comes first. ``apps``:
    of INSTALLED_APPS. ``quicker``: a text of the recipe, and what is in its place here.
    """

    library: str
    program: str
    before: str = ""
    apps: str = ""
    quicker: tuple[str, str] = ("", "")


PROGRAMS = {
    "RQ": Recipe(
        "rq",
        """
from rq import Queue, Worker
queue = Queue(connection=diary)
for _ in range(2):
    recipe.send_later(queue, 7)
for _ in range(2):
    if not os.fork():
        Worker([queue], connection=redis.Redis.from_url(URL)).work(with_scheduler=True)
found = told(4)
""",
        quicker=("interval=10", "interval=1"),
    ),
    "Huey": Recipe(
        "huey",
        """
from huey.contrib.djhuey import HUEY
for _ in range(2):
    recipe.send_invoice(7)
consumer = HUEY.create_consumer(workers=2, periodic=False)
consumer.start()
found = told(4)
""",
        apps="huey.contrib.djhuey",
        quicker=("retry_delay=10", "retry_delay=1"),
    ),
    "Dramatiq": Recipe(
        "dramatiq",
        """
for _ in range(2):
    recipe.send_invoice.send(7)
dramatiq.Worker(dramatiq.get_broker(), worker_threads=2).start()
found = told(4)
""",
        before="""
import dramatiq
from dramatiq.brokers.redis import RedisBroker
dramatiq.set_broker(RedisBroker(url=URL))
""",
        quicker=("min_backoff=10_000", "min_backoff=100,max_backoff=200"),
    ),
    "django-q2": Recipe(
        "django_q",
        """
from django.core.management import call_command
call_command("migrate", verbosity=0)
for _ in range(2):
    recipe.send_later(7)
from django_q.cluster import Cluster
Cluster().start()
found = told(4)
""",
        apps="django_q",
    ),
    "APScheduler": Recipe(
        "apscheduler",
        """
from datetime import datetime
from apscheduler.schedulers.background import BackgroundScheduler
# Two hosts at the same tick.
for scheduler in (recipe.scheduler, BackgroundScheduler()):
    scheduler.add_job(recipe.report, "date", run_date=datetime.now())
    scheduler.start()
told(2)
time.sleep(0.5)
found = told(2)
""",
    ),
    "Channels": Recipe(
        "channels",
        """
import asyncio
from asgiref.testing import ApplicationCommunicator
from django_setnx_lock import lock

async def opened():
    scope = {"type": "websocket", "url_route": {"kwargs": {"pk": 7}}}
    socket = ApplicationCommunicator(recipe.EditingConsumer.as_asgi(), scope)
    await socket.send_input({"type": "websocket.connect"})
    return socket, (await socket.receive_output(10))["type"]

async def edit():
    first, answer = await opened()
    _, another = await opened()
    await first.send_input({"type": "websocket.disconnect", "code": 1000})
    await first.wait(10)
    _, third = await opened()
    return [answer, another, third]

found = asyncio.run(edit())
""",
    ),
}
EXPECTED = {
    "APScheduler": ["report begins", "report ends"],
    "Channels": ["websocket.accept", "websocket.close", "websocket.accept"],
}


def test_each_recipe_is_run() -> None:
    assert set(RECIPES) == set(PROGRAMS)


def found_by(name: str, recipe: str, folder: Path, server: RealServer) -> str:
    """Return what the program of that name finds, run with this ``recipe``."""
    given = PROGRAMS[name]
    if not importlib.util.find_spec(given.library):
        pytest.skip(f"{given.library} is not installed")
    before, after = given.quicker
    assert before in recipe
    code = "from work import deliver, make_report\n" + recipe.replace(before, after)
    parts = (BEGIN, given.before, "import recipe", given.program, END)
    project = Project(folder, server, given.apps, SETTINGS)
    project.write("work.py", WORK)
    project.write("recipe.py", code)
    project.write("program.py", "\n".join(parts))
    return project.found("program.py")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recipe_does_what_it_says(name: str, tmp_path: Path, real_server: RealServer) -> None:
    found = found_by(name, RECIPES[name], tmp_path, real_server)

    assert found == str(EXPECTED.get(name, TWICE))


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["Huey", "Dramatiq"])
def test_without_the_lock_two_are_at_work(
    name: str, tmp_path: Path, real_server: RealServer
) -> None:
    unlocked = re.sub(r"(?m)^@locked.*\n", "", RECIPES[name])

    assert found_by(name, unlocked, tmp_path, real_server) == str(sorted(TWICE))
