"""The examples of the pages about locks in code run as they stand."""

from __future__ import annotations

import ast
import asyncio
import inspect
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from asgiref.sync import sync_to_async
from django.core.checks import run_checks
from django.db import transaction
from django.test import override_settings

import django_setnx_lock
from django_setnx_lock.testing import LockTester
from tests.docs.test_examples import ROOT, python_blocks

PAGES = ["code", "kinds", "transactions"]


def run(block: str, given: dict[str, Any]) -> None:
    code = compile(block, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, given)  # noqa: S307 - of the page
    if inspect.iscoroutine(result):
        asyncio.run(result)


def names() -> dict[str, Any]:
    """Return what the examples name and do not make."""
    called = ("invoice", "load", "pack", "report", "run_import", "transfer")
    return {
        **{name: getattr(django_setnx_lock, name) for name in django_setnx_lock.__all__},
        **{name: Mock() for name in called},
        "__name__": "page",
        "asyncio": asyncio,
        "chosen": [7, 3],
        "order": 42,
        "row": 5,
        "rows": ["first", "second"],
        "show": SimpleNamespace(slug="a:b"),
        "sync_to_async": sync_to_async,
        "threading": threading,
        "transaction": transaction,
    }


@pytest.mark.django_db(transaction=True)
@override_settings(SETNX_LOCK={})
@pytest.mark.parametrize("name", PAGES)
def test_every_example_of_a_page_about_locks_in_code_runs(name: str, locks: LockTester) -> None:
    sent: dict[str, Any] = {}
    given = {**names(), "send": sent.update}

    for block in python_blocks(ROOT / "docs" / f"{name}.md"):
        run(block, {**given, **sent})

    assert len(given["load"].mock_calls) == (4 if name == "code" else 0)
    assert given["pack"].called == given["invoice"].pay.called == (name == "code")
    locks.assert_released("nightly-report")


def test_the_settings_of_the_page_of_settings_pass_the_checks() -> None:
    pieces: list[dict[str, Any]] = []
    for block in python_blocks(ROOT / "docs" / "settings.md"):
        pieces.append({})
        run(block, pieces[-1])
    caches = [piece["CACHES"] for piece in pieces if "CACHES" in piece]

    for piece in pieces:
        with override_settings(CACHES=caches[0], SETNX_LOCK=piece["SETNX_LOCK"]):
            assert [one.msg for one in run_checks(tags=["caches"])] == []
