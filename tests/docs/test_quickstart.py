"""docs/quickstart.md does what it shows: its project is made, and one lock meets all four doors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from tests.processes import eventually
from tests.servers import RealServer

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
# What is typed while the job runs: with Python, in the browser, and by the operator.
TRIED = """
import doctest, json, sys
import django

django.setup()

from django.contrib.auth.models import User
from django.test import Client
from django_setnx_lock import inspector

failed, tried = doctest.testfile(sys.argv[1], module_relative=False, encoding="utf-8")
browser = Client(headers={"host": "localhost"})
seen = {"code": (failed, tried), "busy": browser.get("/orders/1/pay/").status_code}
browser.force_login(User.objects.get())
action = {"action": "mark_paid", "_selected_action": "1"}
listed = browser.post("/admin/shop/order/", action, follow=True)
seen["action"] = listed.content.decode()
seen["form"] = browser.get("/admin/shop/order/1/change/").content.decode()
seen["locks"] = browser.get("/admin/django_setnx_lock/lock/").content.decode()
lock = inspector().get("lock:order:1")
inspector().force_release(lock.name, lock.fingerprint, by="ann", reason="stuck")
seen["free"] = browser.get("/orders/1/pay/").content.decode()
print(json.dumps(seen))
"""


TYPED = [line for kind, block in BLOCKS if kind == "console" for line in block.splitlines()]
LINES = [line.removeprefix("$ ") for line in TYPED]
# One installs, one makes the project, one fills the database; then come the site and the job.
PROJECT = LINES.index("django-admin startproject mysite .")
TABLES = LINES.index("python manage.py makemigrations shop")
SITE = LINES.index("python manage.py runserver")
PROGRAMS = f'''
python() {{ "{sys.executable}" "$@"; }}
django-admin() {{ python -m django "$@"; }}
'''


class Project(NamedTuple):
    folder: Path
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        """Return what ``command`` prints, which ends with status 0."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, *lines: str) -> None:
        self.run("bash", "-c", "\n".join(["set -e", PROGRAMS, *lines]))


@pytest.fixture
def project(real_server: RealServer, tmp_path: Path) -> Project:
    """Make what the page makes, after the installation, with the locks in a server of its own."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "mysite.settings"}
    for name in ("USERNAME", "PASSWORD", "EMAIL"):
        environment[f"DJANGO_SUPERUSER_{name}"] = "ann@example.org"
    project = Project(tmp_path, environment)
    # Before there are settings, nothing may name them.
    Project(tmp_path, {**os.environ, "DJANGO_SETTINGS_MODULE": ""}).type(*LINES[PROJECT:TABLES])
    for kind, block in BLOCKS:
        if kind == "python":
            name, _, code = block.removeprefix("# ").partition("\n")
            code = code.replace("127.0.0.1:6379", f"127.0.0.1:{real_server.port}")
            file = tmp_path / name
            file.write_text((file.read_text() if name == "mysite/settings.py" else "") + code)
    project.type(*(line.replace("user", "user --noinput") for line in LINES[TABLES:SITE]))
    return project


def test_every_block_is_one_that_is_run_or_installs() -> None:
    assert {kind for kind, _ in BLOCKS} == {"console", "pycon", "python"}
    assert [line for line in TYPED if not line.startswith("$ ")] == []
    assert "pip install ./django-setnx-lock" in LINES[:PROJECT]
    assert len(LINES) == SITE + 2
    assert all(re.match(r"# \w+/\w+\.py\n", block) for kind, block in BLOCKS if kind == "python")


@pytest.mark.matrix
@pytest.mark.unmeasured
@pytest.mark.timeout(180)
def test_the_project_of_the_page_has_one_lock_behind_four_doors(
    project: Project, real_server: RealServer
) -> None:
    job = subprocess.Popen(
        [sys.executable, *LINES[SITE + 1].split()[1:]],
        cwd=project.folder,
        env=project.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with redis.Redis(port=real_server.port, db=1) as client:
            eventually(lambda: client.exists("lock:order:1"))

        seen = json.loads(project.run(sys.executable, "-c", TRIED, str(PAGE)).splitlines()[-1])

        assert seen["code"] == [0, 2]
        assert seen["busy"] == 409
        assert "1 order was skipped: Order object (1) (held by " in seen["action"]
        assert "is working on this order" in seen["form"]
        assert "with_lock sleep" in seen["locks"]
        assert seen["free"] == "Order object (1) is paid."
        assert job.wait(timeout=30) == 76
    finally:
        job.kill()
        job.communicate()
