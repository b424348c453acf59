"""The tasks of Django 6 under locks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

# By its types it takes functions only.
LOCKED: Callable[..., Callable[[Any], Any]] = locked


def is_held(key: str) -> bool:
    return lock(key).locked()


@task
@locked("order:<pk>", blocking_timeout=0)
def below(pk: int) -> bool:
    return is_held(f"order:{pk}")


@LOCKED("order:<pk>", blocking_timeout=0)
@task(priority=7)
def above(pk: int) -> bool:
    return is_held(f"order:{pk}")


@LOCKED("order:<pk>", blocking_timeout=0)
@task(takes_context=True)
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


@pytest.mark.parametrize("one", [below, above])
def test_the_function_of_a_task_runs_under_its_lock(one: Any) -> None:
    result = one.enqueue(7)

    assert result.return_value is True
    assert not is_held("order:7")


@pytest.mark.parametrize("one", [below, above])
def test_a_task_whose_lock_is_busy_fails(one: Any) -> None:
    with lock("order:7"):
        result = one.enqueue(7)

    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class_path.endswith("LockBusy")


def test_a_task_fails_for_another_spelling_of_its_key() -> None:
    one: Any = numbered
    right, wrong = one.enqueue("42"), one.enqueue("042")

    assert right.return_value is True
    assert wrong.status == TaskResultStatus.FAILED
    assert "<pk> is '042', and has to be written '42'" in wrong.errors[0].traceback


def test_a_task_that_takes_its_context_runs_under_its_lock() -> None:
    assert with_context.enqueue(7).return_value == [True, 1]


def test_a_task_that_is_async_runs_under_its_lock(fake_connections: None) -> None:
    one: Any = in_asyncio

    assert one.enqueue(7).return_value is True


def test_a_task_stays_what_it_was() -> None:
    assert (above.priority, above.name) == (7, "above")
    assert above.module_path == f"{__name__}.above"
    assert above.call(7) is True


def test_a_task_that_is_sent_is_not_locked_yet() -> None:
    with override_settings(TASKS={"default": {"BACKEND": LATER}}):
        above.enqueue(7)
        backend: Any = task_backends["default"]
        (sent,) = backend.results

    assert sent.task == above
    assert not is_held("order:7")


def test_a_name_that_the_function_does_not_take_is_refused() -> None:
    with pytest.raises(ValueError, match="names <order>"):
        LOCKED("order:<order>")(below)
