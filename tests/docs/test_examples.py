"""The examples of the README run, and those of the pages are Python."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import sys
import textwrap
import unittest
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import celery
import pytest
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_setnx_lock import LockBusy, lock, redis_lock
from django_setnx_lock.testing import LockTester
from tests.rows.models import Ticket

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.joinpath("docs").glob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    found = re.findall(r"^ *```python\n(.*?)```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/tutorial.md"])
def test_every_example_of_the_first_pages_runs(
    locks: LockTester, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(admin.sites, "site", admin.AdminSite())
    built: list[str] = []
    given = {
        "INSTALLED_APPS": [],
        "parts": ["first", "second"],
        "build": built.append,
        "Order": Ticket,
    }
    blocks = python_blocks(ROOT / name)

    for block in blocks:
        exec(block, {"__name__": "page", **given})  # noqa: S102 - of the page

    text = "".join(blocks)
    assert "LockedAdminMixin" in text
    assert built == (["first", "second"] if "build(part)" in text else [])
    for key in re.findall(r'with lock\("([^"]+)"', text):
        locks.assert_released(key)


VIEWS = """
from django.contrib import messages
from django.contrib.auth.mixins import LoginRequiredMixin
from django.shortcuts import get_object_or_404, redirect
from django.urls import path
from django.views.generic import UpdateView, View
from rest_framework.decorators import action
from rest_framework.viewsets import ModelViewSet
from tests.rows.models import Ticket as Order
OrderView = View
"""
ADMIN = """
from django.contrib.admin import AdminSite
from tests.rows.models import Ticket as Order
my_site = AdminSite("mine")
"""


@pytest.mark.parametrize(("name", "before"), [("views", VIEWS), ("commands", ""), ("admin", ADMIN)])
def test_every_example_of_a_door_is_taken(
    name: str, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"__name__": f"docs_{name}"}

    for block in (before, *python_blocks(ROOT / "docs" / f"{name}.md")):
        monkeypatch.setattr(admin.sites, "site", admin.AdminSite())
        exec(block, given)  # noqa: S102 - of the page


def test_the_task_of_celery_runs(locks: LockTester) -> None:
    given: dict[str, Any] = {"__name__": "docs_tasks"}
    (block,) = [
        block for block in python_blocks(ROOT / "docs" / "tasks.md") if "contrib.celery" in block
    ]

    exec(block, given)  # noqa: S102 - of the page

    # Not the current app, which may be another test's.
    tasks = celery.Celery("docs", set_as_current=False).tasks
    assert tasks["docs_tasks.send_invoice"].apply((7,)).state == "SUCCESS"


def charge(pk: int) -> None:
    with lock(f"order:{pk}"):
        pass


@redis_lock("order:<pk>")
def pay(request: HttpRequest, pk: int) -> HttpResponse:
    sys.modules["shop.payments"].charge(pk)
    return HttpResponse("paid")


@pytest.mark.django_db
def test_the_examples_of_the_kit_are_tests_that_pass(
    locks: LockTester, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop: Any = ModuleType("shop")
    shop.payments, shop.charge, shop.urlpatterns = shop, charge, [path("orders/<int:pk>/pay/", pay)]
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setitem(sys.modules, "shop.payments", shop)
    given: dict[str, Any] = {"__name__": "docs_testing", "pytest": pytest, "patch": patch}
    given |= {"LockBusy": LockBusy, "charge": charge}
    fixtures = {"locks": locks, "client": client}
    passed, result = [], unittest.TestResult()

    with override_settings(ROOT_URLCONF=shop):
        for block in python_blocks(ROOT / "docs" / "testing.md"):
            exec(block, given)  # noqa: S102 - of the page
            for name in [name for name in given if name.startswith("test_")]:
                test = given.pop(name)
                test(**{one: fixtures[one] for one in inspect.signature(test).parameters})
                passed.append(name)
        unittest.defaultTestLoader.loadTestsFromTestCase(given["PayTests"]).run(result)

    assert (len(passed), result.testsRun, result.failures, result.errors) == (3, 1, [], [])


def parsed(page: Path, block: str) -> ast.Module:
    # Some show an await or an async with, as they stand in a coroutine function.
    return ast.parse(f"async def shown():\n{textwrap.indent(block, '    ')}", page.name)


def test_every_example_of_a_page_is_python_that_imports_what_is_there() -> None:
    imported = {
        f"{node.module}.{name.name}"
        for page in PAGES
        for block in python_blocks(page)
        for node in ast.walk(parsed(page, block))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("django_setnx_lock")
        for name in node.names
    }

    assert len(imported) > 15
    for name in imported:
        pkgutil.resolve_name(name)


def test_every_name_of_the_reference_is_there() -> None:
    reference = ROOT.joinpath("docs", "reference.md").read_text()
    names = re.findall(r"^\.\. auto\w+:: (\S+)$", reference, re.MULTILINE)

    assert len(names) > 30
    for name in names:
        pkgutil.resolve_name(name)
