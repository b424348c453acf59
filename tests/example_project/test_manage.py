from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from example_project.caches import database_url
from tests.processes import eventually
from tests.servers import free_port

if TYPE_CHECKING:
    from tests.example_project.conftest import Checkout

URLS = """
from django.core.cache import cache
from django.http import HttpResponse
from django.urls import path

def visits(request):
    cache.add("visits", 0)
    return HttpResponse(f"{version} " + str(cache.incr("visits")))

urlpatterns = [path("", visits)]
"""


def visit(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as page:
            return str(page.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return ""


def run(checkout: Checkout, *words: str) -> tuple[int, str]:
    """Run a command to its end; return its status and what it says."""
    process = checkout.run(*words, stdout=subprocess.PIPE)
    said, _ = process.communicate(timeout=30)
    return process.returncode, said


FURTHER = ("--help", "makemigrations --check --dry-run")


@pytest.mark.parametrize(
    "command", ["check", *(pytest.param(one, marks=pytest.mark.matrix) for one in FURTHER)]
)
def test_a_command_that_needs_no_server_starts_none(checkout: Checkout, command: str) -> None:
    status, said = run(checkout, "-W", "error", "manage.py", *command.split())

    assert status == 0, said
    assert checkout.starts == 0


@pytest.mark.matrix
def test_the_caches_are_two_databases_of_the_embedded_server(checkout: Checkout) -> None:
    code = (
        "from django.core.cache import caches; caches['default'].set('a', 1); "
        "caches['locks'].set('b', 2); caches['default'].clear(); "
        "print(caches['default'].get('a'), caches['locks'].get('b'))"
    )
    assert run(checkout, "manage.py", "shell", "-v0", "-c", code) == (0, "None 2\n")
    assert checkout.starts == 1
    eventually(checkout.is_gone)


@pytest.mark.matrix
def test_a_missing_server_is_one_message(checkout: Checkout) -> None:
    checkout.server.unlink()
    code = "from django.core.cache import cache; cache.get('a')"

    status, said = run(checkout, "manage.py", "shell", "-v0", "-c", code)

    assert status == 1
    assert said.startswith("There is no Redis or Valkey server here.")
    assert said.count("\n") == 1


@pytest.mark.matrix
def test_the_shop_is_tested_without_redis(checkout: Checkout) -> None:
    status, said = run(checkout, "-W", "error", "manage.py", "test", "example_project")

    assert status == 0, said
    assert "Ran 7 tests" in said
    assert checkout.starts == 0


@pytest.mark.matrix
def test_the_line_in_the_readme_imports(checkout: Checkout) -> None:
    readme = (checkout.directory / "example_project" / "README.md").read_text()
    line = re.search(r"\$ python (.* import_orders .*)", readme)
    assert line is not None
    words = [sys.executable if word == "python" else word for word in line[1].split()]
    run(checkout, "manage.py", "migrate", "-v0")

    assert run(checkout, *words) == (0, "6 added, 0 known before.\n")
    eventually(checkout.is_gone)


@pytest.mark.parametrize(
    ("server", "number", "expected"),
    [
        ("unix:///run/x/redis.sock", 0, "unix:///run/x/redis.sock?db=0"),
        ("unix:///run/x/redis.sock", 1, "unix:///run/x/redis.sock?db=1"),
        ("redis://:pa%2Fss@h:6379", 1, "redis://:pa%2Fss@h:6379?db=1"),
        ("redis://h:6379/5", 1, "redis://h:6379/5?db=6"),
        ("redis://h?db=2&health_check_interval=3", 1, "redis://h?db=3&health_check_interval=3"),
    ],
)
def test_a_cache_s_database_is_counted_from_the_one_named(
    server: str, number: int, expected: str
) -> None:
    assert database_url(server, number) == expected


@pytest.mark.matrix
def test_runserver_keeps_its_data_over_a_reload_and_leaves_nothing_at_ctrl_c(
    checkout: Checkout,
) -> None:
    urls = checkout.directory / "example_project" / "urls.py"
    urls.write_text(URLS.replace("{version}", "first"))
    port = free_port()
    process = checkout.run("manage.py", "runserver", f"127.0.0.1:{port}", stdout=subprocess.DEVNULL)
    first = eventually(lambda: visit(port), seconds=20)

    urls.write_text(URLS.replace("{version}", "changed"))

    def changed_page() -> str:
        urls.touch()  # again and again: what changes before the reloader's first look is not seen
        page = visit(port)
        return page if page.startswith("changed") else ""

    second = eventually(changed_page, seconds=20)
    os.killpg(process.pid, signal.SIGINT)

    assert first == "first 1"
    assert int(second.split()[1]) > 1
    assert checkout.starts == 1
    process.wait(timeout=10)
    eventually(checkout.is_gone)
