"""A process that was started under a lock has it again by what its environment says."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockError, LockLost
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.locks import parent_process
from django_setnx_lock.core.renewal.watchdog import WATCHDOG
from tests.core.helpers import in_thread, value_of
from tests.processes import each_fork, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_setnx_lock.core import LockHandle
    from tests.servers import RealServer

VARIABLE = "SETNX_LOCK_HELD_TOKENS"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    parent_process.forget()
    yield
    parent_process.forget()


@pytest.fixture
def mine(real_server: RealServer) -> Callable[..., RedisLock]:
    """Give what makes a reentrant lock that does not wait."""
    client = real_server.client()

    def mine(name: str = "lock:a", **options: Any) -> RedisLock:
        given = {"reentrant": True, "blocking": False, **options}
        return RedisLock(client, name, **given)

    return mine


@pytest.fixture
def started_under(
    mine: Callable[..., RedisLock], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., LockHandle]:
    """Give what has this process be one that was started under a lock."""

    def started_under(name: str = "lock:a", **options: Any) -> LockHandle:
        # Taken in a thread that is over: the one who holds it is another process.
        held = in_thread(mine(name, **options).take)
        monkeypatch.setenv(VARIABLE, parent_process.described(held.grant, os.environ))
        parent_process.forget()
        return held

    return started_under


def test_it_has_the_lock_again(
    started_under: Callable[..., LockHandle], mine: Callable[..., RedisLock]
) -> None:
    above = started_under()

    with mine() as held:
        held.check()
        assert (held.token, held.fence) == (above.token, above.fence)


def test_leaving_it_releases_nothing(
    started_under: Callable[..., LockHandle],
    mine: Callable[..., RedisLock],
    real_server: RealServer,
) -> None:
    above = started_under()

    with mine(), mine():
        pass
    with mine():
        pass

    assert value_of(real_server.client()) == above.token
    above.release()


def test_without_the_environment_it_waits_for_itself(
    started_under: Callable[..., LockHandle],
    mine: Callable[..., RedisLock],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    above = started_under()
    monkeypatch.delenv(VARIABLE)
    parent_process.forget()

    with pytest.raises(LockBusy):
        mine().take()
    assert not above.released


def test_a_lock_that_the_one_above_has_lost_is_not_had_again(
    started_under: Callable[..., LockHandle],
    mine: Callable[..., RedisLock],
    real_server: RealServer,
) -> None:
    above = started_under()
    real_server.client().set("lock:a", "somebody", px=20_000)

    with pytest.raises(LockBusy):
        mine().take()
    assert not above.released


def test_a_lock_that_the_one_above_has_let_go_is_taken_anew(
    started_under: Callable[..., LockHandle], mine: Callable[..., RedisLock]
) -> None:
    above = started_under()
    above.release()

    with mine() as anew:
        assert anew.fence > above.fence


def test_all_that_are_held_are_carried(
    started_under: Callable[..., LockHandle], mine: Callable[..., RedisLock]
) -> None:
    above = [started_under("lock:a"), started_under("lock:b")]

    with mine("lock:a") as first, mine("lock:b") as second:
        assert [first.token, second.token] == [held.token for held in above]


def test_one_thread_has_it_at_a_time(
    started_under: Callable[..., LockHandle], mine: Callable[..., RedisLock]
) -> None:
    above = started_under()

    with mine():
        assert in_thread(mine().acquire) is False

    assert in_thread(lambda: mine().take().token) == above.token


def test_one_check_is_asked_for_and_none_inside(
    started_under: Callable[..., LockHandle],
    mine: Callable[..., RedisLock],
    real_server: RealServer,
) -> None:
    above = started_under()
    client = real_server.client()
    # Connections and scripts are there by then.
    with mine():
        pass

    def calls() -> int:
        stats: Any = client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))

    before = calls()
    with mine(), mine():
        assert calls() == before + 1
    assert calls() == before + 1
    assert not above.released


def test_the_lease_is_followed_and_never_lengthened(
    started_under: Callable[..., LockHandle],
    mine: Callable[..., RedisLock],
    real_server: RealServer,
) -> None:
    above = started_under(timeout=20)
    client = real_server.client()
    held = mine(timeout=20).take()
    client.pexpire("lock:a", 5000)

    held.reacquire()
    assert client.pttl("lock:a") <= 5000
    with pytest.raises(LockError, match="with_lock"):
        held.extend(10)
    assert client.pttl("lock:a") <= 5000
    assert not above.released


def test_it_goes_on_as_long_as_the_one_above_renews(
    started_under: Callable[..., LockHandle], mine: Callable[..., RedisLock]
) -> None:
    above = started_under(timeout=3)
    held = mine(timeout=3, renew=False).take()
    first = held.lease.end

    above.reacquire()

    def has_followed() -> bool:
        above.reacquire()
        return held.lease.end > first + 0.3

    eventually(has_followed)

    assert not held.lost
    held.release()


def test_it_is_lost_when_the_one_above_stops_renewing(
    started_under: Callable[..., LockHandle], mine: Callable[..., RedisLock]
) -> None:
    above = started_under(timeout=0.3)
    lost: list[LockHandle] = []
    held = mine(timeout=0.3, on_lost=lost.append).take()

    eventually(lambda: bool(lost))

    assert held.lost
    assert lost == [held]
    with pytest.raises(LockLost):
        held.check()
    assert above.lost


def test_it_is_looked_after_only_while_it_is_shared(
    started_under: Callable[..., LockHandle], mine: Callable[..., RedisLock]
) -> None:
    above = started_under()
    held = mine().take()
    during = len(WATCHDOG.watched())

    held.release()

    assert (during, len(WATCHDOG.watched())) == (1, 0)
    assert not above.released


def test_a_lock_that_is_not_reentrant_is_not_had_again(
    started_under: Callable[..., LockHandle], mine: Callable[..., RedisLock]
) -> None:
    above = started_under()

    with pytest.raises(LockBusy):
        mine(reentrant=False).take()
    assert not above.released


@each_fork
def test_a_fork_has_none_of_it(
    started_under: Callable[..., LockHandle],
    mine: Callable[..., RedisLock],
    fork: Callable[[], int],
) -> None:
    above = started_under()
    assert parent_process.is_possible()

    child = fork()
    if not child:
        status = 1
        try:
            status = int(parent_process.is_possible())
        finally:
            os._exit(status)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not above.released


GOOD = {"place": "p", "name": "n", "token": "secret", "fence": 1, "timeout": 30.0}


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "text",
    [
        "secret",
        "{",
        "7",
        "[7]",
        "null",
        '["secret"]',
        '[{"token": "secret"}]',
        "[" * 100_000,
        *[json.dumps([{**GOOD, name: None}]) for name in GOOD],
        json.dumps([{**GOOD, "timeout": -1}]),
        json.dumps([{**GOOD, "timeout": float("nan")}]),
        json.dumps([{**GOOD, "fence": "1"}]),
        json.dumps([{**GOOD, "more": 1}]),
    ],
    ids=lambda text: text if len(text) < 200 else "deep",
)
def test_what_cannot_be_understood_is_told_and_ignored(
    mine: Callable[..., RedisLock],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    text: str,
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    caplog.set_level(logging.WARNING, "django_setnx_lock")

    with mine(), mine("lock:b"):
        pass

    (record,) = caplog.records
    assert VARIABLE in record.getMessage()
    assert "secret" not in caplog.text


def test_neither_credentials_nor_what_only_this_process_knows_are_told(
    real_server: RealServer,
) -> None:
    client = redis.Redis(port=real_server.port, username="u", password="hidden")
    clients = (client, _Pool())
    told = []
    for one in clients:
        held = RedisLock(real_server.client(), "lock:a").take()
        object.__setattr__(held.target, "client", one)
        told.append(parent_process.described(held.grant, {}))
        object.__setattr__(held.target, "client", real_server.client())
        held.release()

    assert "hidden" not in told[0]
    assert json.loads(told[0])[0]["place"] == f"tcp localhost:{real_server.port}/0"
    assert told[1] == "[]"


class _Pool:
    """A client without a pool, as that of a cluster."""
