"""``lock()`` with several keys, ``lock_all()``, and docs/many.md beside them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest
import typing_extensions
from django.test import override_settings

from django_setnx_lock import LockBusy, LockLost, lock, lock_all, locks
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.connections import execute
from django_setnx_lock.core.connections.backends import Blocking
from django_setnx_lock.core.locks.options import UNSET

if TYPE_CHECKING:
    from django_setnx_lock.core import MultiLockHandle

ROOT = Path(__file__).parents[1]
PAGE = ROOT.joinpath("docs", "many.md").read_text()


def test_several_keys_are_one_lock_over_all_of_them() -> None:
    with lock("account:7", "account:3") as held:
        names = sorted(get_client().keys("lock:*"))

    assert names == [b"lock:account:3", b"lock:account:7"]
    assert list(held) == ["account:7", "account:3"]
    assert held.released


def test_any_number_of_keys_is_taken_from_an_iterable() -> None:
    with lock_all(f"row:{number}" for number in range(50)) as held:
        assert len(held) == 50
        held.check()


def test_they_are_taken_by_one_script(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    call = execute.call

    async def noting(io: Blocking, client: Any, request: Any, *rest: Any, **options: Any) -> Any:
        asked.append(request.script.name)
        return await call(io, client, request, *rest, **options)

    monkeypatch.setattr(execute, "call", noting)

    lock("b", "a").take().release()

    assert asked == ["acquire_all"]


def test_one_key_is_a_lock_of_its_own() -> None:
    assert type(lock("account:7")) is RedisLock
    assert type(lock(key="account:7")) is RedisLock


def test_a_list_of_one_key_is_a_list_still() -> None:
    with lock_all(["account:7"]) as held:
        assert list(held.fences) == ["account:7"]


def test_a_key_given_twice_is_taken_once() -> None:
    with lock("account:7", "account:7") as held:
        assert list(held) == ["account:7"]


def test_no_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="no key"):
        lock_all([])


def test_a_text_is_no_list_of_keys() -> None:
    with pytest.raises(TypeError, match=r"\['account:7'\]"):
        lock_all("account:7")


def test_one_busy_key_is_named_and_nothing_is_taken() -> None:
    with lock("account:3"), pytest.raises(LockBusy) as caught:
        lock("account:7", "account:3", blocking=False, reentrant=False).take()

    assert caught.value.key == "account:3"
    assert not get_client().exists("lock:account:7")


def test_the_settings_are_those_of_one_lock() -> None:
    with override_settings(SETNX_LOCK={"TIMEOUT": 7, "BLOCKING_TIMEOUT": 3, "KEY_PREFIX": "x:"}):
        one = lock("a", "b")

    assert (one.timeout, one.blocking_timeout, one.names) == (7.0, 3.0, ("x:a", "x:b"))


@override_settings(SETNX_LOCK={"BLOCKING_TIMEOUT": 0})
def test_what_is_held_is_had_again_by_default() -> None:
    with lock("a"), lock("b", "a") as held, lock("b") as again:
        assert again.fence == held.fences["b"]


def test_a_loss_is_told_once_with_the_handle_of_all() -> None:
    told: list[MultiLockHandle] = []
    held = lock("a", "b", on_lost=told.append).take()
    get_client().delete("lock:b")

    with pytest.raises(LockLost, match="'b'"):
        held.check()

    assert told == [held]


def test_the_options_are_those_of_one_lock() -> None:
    parameters = inspect.signature(lock).parameters
    taken = set(parameters) - {"key", "more", "on_lost"}

    namespace = {**vars(locks), **vars(typing_extensions), "Release": str}
    hints = get_type_hints(locks.Options, localns=namespace)

    assert set(hints) == taken


OPTIONS: list[dict[str, Any]] = [
    {"min_hold": 5, "max_hold": 60},
    {"protocol": "timestamp"},
    {"renew": False},
    {"blocking_timeout": None},
    {"blocking_timeout": UNSET},
    {"label": "nightly", "note": "all", "user": "joe"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_an_option_passes_through(options: dict[str, Any]) -> None:
    with lock("a", "b", **options) as held:
        held.check()

    kept = get_client().exists("lock:a", "lock:b")
    assert kept == (2 if "min_hold" in options else 0)


def test_with_times_at_the_names_they_are_taken_one_after_the_other() -> None:
    with lock("b", protocol="timestamp"), pytest.raises(LockBusy, match="'b'"):
        lock("c", "b", "a", protocol="timestamp", reentrant=False).take(0)

    with lock("c", "b", "a", protocol="timestamp") as held:
        assert held.fences["a"] < held.fences["b"] < held.fences["c"]
        assert lock("a", "d", protocol="timestamp").locked()


def test_the_page_is_linked_from_the_others() -> None:
    pages = [ROOT / "docs" / f"{name}.md" for name in ("code", "reentrancy")]

    assert [page.name for page in pages if "many.md" not in page.read_text()] == []


@pytest.mark.parametrize("name", ["fences", "check", "remaining", "lost", "extend", "reacquire"])
def test_what_the_handle_has_is_told_of(name: str) -> None:
    assert re.search(rf"`held\.{name}\b", PAGE)
