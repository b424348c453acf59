"""The recipes of docs/cookbook.md: each is run in a project, by several, and without its lock."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.processes import eventually
from tests.support.brokers import need_broker
from tests.support.projects import ROOT, Project

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from tests.servers import RealServer

# Each starts several programs.
pytestmark = [pytest.mark.unmeasured, pytest.mark.real, pytest.mark.matrix]

PAGE = (ROOT / "docs" / "cookbook.md").read_text()
SECTIONS = re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
# Of each recipe its files: what stands behind the name of each, in a comment.
RECIPES = {
    title: dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", text, re.DOTALL))
    for title, text in SECTIONS
}
SETTINGS = """
ALLOWED_HOSTS = ["testserver"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS += ["shop"]
MIDDLEWARE = ["django_setnx_lock.middleware.LockMiddleware"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SETNX_LOCK = {"TIMEOUT": float(os.environ.get("LEASE", "30"))}
# There is but one database for the tests.
SILENCED_SYSTEM_CHECKS = ["django_setnx_lock.W002"]
if "AWAY" in os.environ:
    CACHES["default"]["LOCATION"] = "redis://127.0.0.1:1/0"
"""
# Programs without it start sooner.
ADMIN = """
INSTALLED_APPS += [f"django.contrib.{name}" for name in ("admin", "auth", "messages", "sessions")]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "django.template.context_processors.request",
            ]
        },
    }
]
STATIC_URL = "static/"
"""
COMMAND = """
from django.core.management.base import BaseCommand
from tests.support.stage import work

class Command(BaseCommand):
    requires_system_checks = ()

    def handle(self, *args, **options):
        work()
"""
# What the recipes import of the shop, and what makes a project of it.
SHOP = {
    "manage.py": "import sys\n"
    "from django.core.management import execute_from_command_line\n"
    "execute_from_command_line(sys.argv)\n",
    ".venv/bin/python": f'#!/bin/sh\nexec "{sys.executable}" "$@"\n',
    "shop/__init__.py": "",
    "shop/management/__init__.py": "",
    "shop/management/commands/__init__.py": "",
    "shop/management/commands/report.py": COMMAND,
    "shop/models.py": """
from django.db import models

class Event(models.Model):
    id = models.CharField(max_length=50, primary_key=True)

class Order(models.Model):
    number = models.CharField(max_length=50)
""",
    "shop/provider.py": """
import json, os, signal
from tests.support.stage import diary, work

def verified(request):
    return json.loads(request.body)

def fulfil(event):
    work()

def charge(idempotency_key):
    # The first one stands still, as after a suspended machine.
    if diary.sadd("charges", idempotency_key):
        os.kill(os.getpid(), signal.SIGSTOP)
    return f"by {os.getpid()}"
""",
    "shop/orders.py": """
from tests.support.stage import work

def rows(file):
    return [1, 2, 3]

def load(row):
    work()
""",
    "shop/exports.py": """
from tests.support.stage import work

def make_export():
    work()
    return "a,b"
""",
    "shop/feed.py": """
import os
from tests.support.stage import diary, work

def poll():
    diary.rpush("leaders", os.getpid())
    work()
""",
    "shop/api.py": """
from tests.support.stage import diary

def ask(order):
    seconds, microseconds = diary.time()
    diary.rpush("asked", seconds * 1_000_000 + microseconds)
""",
    "shop/index.py": """
from tests.support.stage import diary, work

def build():
    seen = diary.get("changes")
    work()
    diary.set("index", seen)
""",
    "shop/reports.py": "from tests.support.stage import work as make_report",
    "shop/celery.py": """
import os
from celery import Celery

server = os.environ["TEST_SERVER_URL"].rpartition("/")[0]
app = Celery("shop", broker=f"{server}/1", backend=f"{server}/2", include=["shop.tasks"])
app.conf.broker_connection_retry_on_startup = True
""",
    "shop/urls.py": "urlpatterns = []",
}


class Recipe(NamedTuple):
    """How a recipe is run.

    ``program``: what uses it, and ``expected``: what that finds. ``unlocked``: what of the recipe
    is in whose place for the control, which finds ``fault``. ``away``: what it
    finds without Redis. ``quicker``: texts of the recipe, and
    what is in their places here. ``files``: more of the shop.
    """

    program: str
    expected: list[Any]
    unlocked: list[tuple[str, str]]
    fault: list[Any]
    away: Any
    quicker: dict[str, str] = {}  # noqa: RUF012
    files: dict[str, str] = {}  # noqa: RUF012
    variables: dict[str, str] = {}  # noqa: RUF012


def urls(name: str) -> dict[str, str]:
    return {
        "shop/urls.py": "from django.urls import path\n"
        f"from shop import views\nurlpatterns = [path('{name}/', views.{name})]\n"
    }


PROGRAMS = {
    "A webhook, once": Recipe(
        "webhook",
        [[200, 409, 200], 1, 1],
        [(r"with lock\(.*\):", "if True:")],
        # The second one finds that its row is there only when it writes it.
        [[200, 500], 2, 2],
        503,
        files=urls("webhook"),
    ),
    "A form for two people": Recipe(
        "editing_form",
        [False, True, 302, "of ann", 302],
        [("LockedAdminMixin, ", ""), (', "edited_by"', "")],
        [True, False, 302, "of bob", 302],
        [True, True, 302],
        files={
            "admin_settings.py": f"from project_settings import *\n{ADMIN}",
            "shop/urls.py": "from django.contrib import admin\nfrom django.urls import path\n"
            "urlpatterns = [path('admin/', admin.site.urls)]\n",
        },
        variables={"DJANGO_SETTINGS_MODULE": "admin_settings"},
    ),
    "At most three exports": Recipe(
        "exports",
        [[200, 200, 200, 409, 200], 3, 4],
        [(r"@redis_lock.*\n", "")],
        [[200] * 4, 4, 4],
        503,
        files=urls("export"),
        variables={"COMPANY": "4"},
    ),
    "A leader for a minute": Recipe(
        "leader",
        [1, True],
        [("with lock.*:", "if True:"), (r"held\.check\(\)", "pass")],
        [2, True],
        [5, 5],
        quicker={"+ 60": "+ 0.3", "timeout=10": "timeout=5", "sleep(1)": "sleep(0.01)"},
    ),
    "A payment with a fence": Recipe(
        "payment",
        [["LockLost", None, True], 1],
        [(r"fence=held", ""), (r"claim\(held, ", "get(")],
        [["LockLost", None, False], 1],
        "LockUnavailable",
        variables={"LEASE": "5"},
    ),
    "The rate of an API": Recipe(
        "rate",
        [6, 6],
        [("with lock.*:", "if True:")],
        [6, 6],
        "LockUnavailable",
        quicker={"=30": "=None"},
    ),
    "A search index, rebuilt": Recipe(
        "search_index",
        [[None, None], 1, 2, True],
        [(r"(?s)try:.*with held:", "if True:")],
        [[None, None], 2, 2, True],
        "LockUnavailable",
    ),
    "A Celery beat job, on one host": Recipe(
        "celery_beat",
        [["SUCCESS", "REVOKED", "REVOKED"], 1, 1],
        [(r"@locked_task.*", "@__import__('celery').shared_task")],
        [["SUCCESS", "SUCCESS"], 2, 2],
        "LockUnavailable",
        # The app is there before its tasks.
        files={"shop/__init__.py": "from shop import celery\n"},
    ),
}
COMMANDS = {
    "A cron job, once in the fleet",
    "A Kubernetes job, in one pod",
    "One import at a time",
}


def test_each_recipe_is_run() -> None:
    assert set(RECIPES) == set(PROGRAMS) | COMMANDS


@pytest.fixture
def project(tmp_path: Path, real_server: RealServer) -> Project:
    project = Project(tmp_path, real_server, settings=SETTINGS)
    for name, text in SHOP.items():
        project.write(name, text).chmod(0o755)
    return project


def put(project: Project, title: str, replaced: list[tuple[str, str]]) -> None:
    """Put the files of the recipe into the project, with other texts in them."""
    missed = dict(replaced)
    for name, text in RECIPES[title].items():
        for pattern, instead in replaced:
            text, count = re.subn(pattern, instead, text)
            if count:
                missed.pop(pattern, None)
        project.write(name, text)
    assert missed == {}


def found_by(
    project: Project,
    title: str,
    *,
    locked: bool,
    replaced: Sequence[tuple[str, str]] = (),
    **variables: str,
) -> Any:
    if "Celery" in title:
        need_broker(project.url)
    recipe = PROGRAMS[title]
    quicker = [(re.escape(text), instead) for text, instead in recipe.quicker.items()]
    put(project, title, [*quicker, *replaced, *([] if locked else recipe.unlocked)])
    for name, text in recipe.files.items():
        project.write(name, text)
    program = ("-m", "tests.docs.cookbook_programs", recipe.program)
    given = {"LOCKED": "yes" if locked else "", **recipe.variables, **variables}
    return json.loads(project.found(*program, **given))


@pytest.mark.parametrize("title", [title for title in PROGRAMS if "rate" not in title])
def test_a_recipe_does_what_it_says(project: Project, title: str) -> None:
    assert found_by(project, title, locked=True) == PROGRAMS[title].expected


@pytest.mark.parametrize("title", [title for title in PROGRAMS if "rate" not in title])
def test_without_its_lock_a_recipe_goes_wrong(project: Project, title: str) -> None:
    assert found_by(project, title, locked=False) == PROGRAMS[title].fault


def test_the_database_refuses_the_write_of_a_process_that_knows_of_no_loss(
    project: Project,
) -> None:
    title, number = "A payment with a fence", ("fence=held", "fence=held.fence")
    found = found_by(project, title, locked=True, replaced=[number])

    assert found == [["StaleFence", None, True], 1]


def test_turns_of_an_api_are_far_enough_apart(project: Project) -> None:
    *counts, pause = found_by(project, "The rate of an API", locked=True)

    assert counts == [6, 6]
    # Leases end at whole milliseconds.
    assert pause > 0.198


def test_without_turns_requests_come_together(project: Project) -> None:
    *counts, pause = found_by(project, "The rate of an API", locked=False)

    assert counts == [6, 6]
    assert pause < 0.198


@pytest.mark.parametrize("title", PROGRAMS)
def test_nothing_is_done_while_redis_is_away(
    project: Project, real_server: RealServer, title: str
) -> None:
    assert found_by(project, title, locked=True, AWAY="yes") == PROGRAMS[title].away
    assert begun(real_server) == 0
    assert real_server.admin.scard("charges") == 0
    assert real_server.admin.llen("asked") == 0


def begun(server: RealServer) -> int:
    """Return how often the work of the shop has begun."""
    return len(server.admin.lrange("met", 0, -1))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the status of a program, and what it has said."""
    said, errors = process.communicate(timeout=50)
    return process.returncode, said + errors


CRON = "A cron job, once in the fleet"
POD = "A Kubernetes job, in one pod"
IMPORT = "One import at a time"


def cron_line(folder: Path) -> str:
    (text,) = RECIPES[CRON].values()
    line = re.sub(r"^(\S+ +){6}", "", text.strip())
    return line.replace("/srv/shop", str(folder))


def pod_command() -> list[str]:
    (text,) = RECIPES[POD].values()
    found = re.search(r"command: (\[.*\])", text, re.DOTALL)
    assert found is not None
    command: list[str] = json.loads(found[1])
    return command


def test_of_the_hosts_with_a_cron_job_one_runs_it(
    project: Project, real_server: RealServer
) -> None:
    (project.folder / ".venv" / "bin" / "python").chmod(0o755)
    host = ("sh", "-c", cron_line(project.folder))

    first = project.start(*host)
    eventually(lambda: begun(real_server))
    second = ended(project.start(*host))
    real_server.admin.set("go", 1)
    # The last one's clock is late.
    found = [ended(first), second, ended(project.start(*host))]

    assert found == [(0, "")] * 3
    assert begun(real_server) == 1


def test_of_two_pods_one_works(project: Project, real_server: RealServer) -> None:
    first = project.start(*pod_command())
    eventually(lambda: begun(real_server))
    status, said = ended(project.start(*pod_command()))
    real_server.admin.set("go", 1)

    assert (status, ended(first)) == (0, (0, ""))
    assert "held by" in said
    assert begun(real_server) == 1


def test_a_pod_that_is_deleted_lets_the_next_one_work(
    project: Project, real_server: RealServer
) -> None:
    first = project.start(*pod_command())
    eventually(lambda: begun(real_server))
    first.terminate()
    status, _ = ended(first)
    real_server.admin.set("go", 1)

    assert status == 143
    assert ended(project.start(*pod_command())) == (0, "")
    assert begun(real_server) == 2


def test_imports_run_one_after_the_other(project: Project, real_server: RealServer) -> None:
    put(project, IMPORT, [])
    line = ("python", "manage.py", "import_orders", "orders.csv")

    first = project.start(*line)
    eventually(lambda: begun(real_server))
    refused, _ = ended(project.start(*line, "--no-wait"))
    second = project.start(*line)
    assert second.stderr is not None
    told = second.stderr.readline()
    meanwhile = begun(real_server)
    real_server.admin.set("go", 1)

    assert (refused, meanwhile) == (75, 1)
    assert "held by" in told
    assert [ended(one) for one in (first, second)] == [(0, "")] * 2
    assert begun(real_server) == 6


def test_an_import_whose_lock_is_taken_away_loads_no_further_row(
    project: Project, real_server: RealServer
) -> None:
    put(project, IMPORT, [])
    importing = project.start("python", "manage.py", "import_orders", "orders.csv")
    eventually(lambda: begun(real_server))
    release = ("locks", "release", "import", "--yes", "--reason", "a test")
    released, said = ended(project.start("python", "manage.py", *release))
    real_server.admin.set("go", 1)
    status, _ = ended(importing)

    assert (released, status, begun(real_server)) == (0, 76, 1), said


UNLOCKED = {
    CRON: r"manage\.py with_lock.*? report \S+python ",
    POD: r"manage\.py with_lock.* report python ",
}


def test_without_the_lock_every_host_runs_the_job(
    project: Project, real_server: RealServer
) -> None:
    line, count = re.subn(UNLOCKED[CRON], "", cron_line(project.folder))
    hosts = [project.start("sh", "-c", line) for _ in range(2)]

    assert [ended(host) for host in hosts] == [(0, "")] * 2
    assert count == 1
    assert "2" in real_server.admin.lrange("met", 0, -1)


def test_without_the_lock_both_pods_work(project: Project, real_server: RealServer) -> None:
    command, count = re.subn(UNLOCKED[POD], "", " ".join(pod_command()))
    pods = [project.start(*command.split()) for _ in range(2)]

    assert [ended(pod) for pod in pods] == [(0, "")] * 2
    assert count == 1
    assert "2" in real_server.admin.lrange("met", 0, -1)


def test_without_the_lock_two_imports_run_at_once(
    project: Project, real_server: RealServer
) -> None:
    plain = "from django.core.management.base import BaseCommand"
    put(
        project,
        IMPORT,
        [(r"from \S+ import LockedCommand", plain), ("Locked", "Base"), (r"self\.lock.*", "pass")],
    )
    line = ("python", "manage.py", "import_orders", "orders.csv")
    both = [project.start(*line) for _ in range(2)]

    assert [ended(one) for one in both] == [(0, "")] * 2
    assert "2" in real_server.admin.lrange("met", 0, -1)


@pytest.mark.parametrize("title", sorted(COMMANDS))
def test_no_job_starts_while_redis_is_away(
    project: Project, real_server: RealServer, title: str
) -> None:
    put(project, title, [])
    command = {
        CRON: ("sh", "-c", cron_line(project.folder)),
        POD: pod_command(),
        IMPORT: ("python", "manage.py", "import_orders", "orders.csv"),
    }[title]

    status, said = ended(project.start(*command, AWAY="yes"))

    # That of the test behind the line, which cron makes nothing of.
    assert status == (1 if title == CRON else 69)
    assert "denied" in said or "refused" in said, said
    assert begun(real_server) == 0
