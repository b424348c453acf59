"""The tasks of Django 6 under locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import django
import pytest

from django_setnx_lock import lock, locked

if django.VERSION < (6,):
    pytest.skip("Django has tasks from 6.0 on", allow_module_level=True)

from django.tasks import task, task_backends
from django.tasks.base import TaskResultStatus
from django.test import override_settings

NOW = "django.tasks.backends.immediate.ImmediateBackend"
LATER = "django.tasks.backends.dummy.DummyBackend"


def is_held(key: str) -> bool:
    return lock(key).locked()


@task
@locked("order:<pk>", blocking_timeout=0)
def below(pk: int) -> bool:
    return is_held(f"order:{pk}")


@task(takes_context=True, priority=7)
@locked("order:<pk>", blocking_timeout=0)
def with_context(context: Any, pk: int) -> list[bool | int]:
    return [is_held(f"order:{pk}"), context.attempt]


@task
@locked("order:<pk>", blocking_timeout=0)
async def in_asyncio(pk: int) -> bool:
    return await lock(f"order:{pk}").alocked()


@task
@locked("order:<pk:int>", blocking_timeout=0)
def numbered(pk: Any) -> bool:
    return is_held(f"order:{pk}")


@pytest.fixture(autouse=True)
def immediate() -> Iterator[None]:
    with override_settings(TASKS={"default": {"BACKEND": NOW}}):
        yield


TASKS: dict[str, tuple[Any, object]] = {
    "a function": (below, True),
    "with its context": (with_context, [True, 1]),
    "async": (in_asyncio, True),
    "by a value": (numbered, True),
}


@pytest.mark.usefixtures("fake_connections")
@pytest.mark.parametrize(("one", "returned"), TASKS.values(), ids=TASKS)
def test_a_task_runs_under_its_lock(one: Any, returned: object) -> None:
    assert one.enqueue(7).return_value == returned
    assert not is_held("order:7")


def test_a_task_whose_lock_is_busy_fails() -> None:
    with lock("order:7"):
        result = below.enqueue(7)

    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class_path.endswith("LockBusy")


def test_a_task_fails_for_another_spelling_of_its_key() -> None:
    one: Any = numbered
    wrong = one.enqueue("042")

    assert wrong.status == TaskResultStatus.FAILED
    assert "<pk> is '042', and has to be written '42'" in wrong.errors[0].traceback


def test_a_task_that_is_sent_is_not_locked_yet() -> None:
    with override_settings(TASKS={"default": {"BACKEND": LATER}}):
        below.enqueue(7)
        backend: Any = task_backends["default"]
        (sent,) = backend.results

    assert sent.task == below
    assert not is_held("order:7")


def test_a_lock_above_the_decorator_of_the_task_is_refused() -> None:
    above: Any = locked("order:<pk>")

    with pytest.raises(TypeError, match="put locked below the decorator that makes the task"):
        above(below)
