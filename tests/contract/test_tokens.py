"""The token that proves whose a lock is: chosen by the caller, refused, and shown to nobody."""

from __future__ import annotations

import functools
import logging
import secrets
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockError
from tests.processes import in_thread
from tests.support.kinds import EXCLUSIVE, HOSTED, ONE_SERVER, PERMITS, READERS, SEVERAL
from tests.support.rows import on

if TYPE_CHECKING:
    from tests.support.drivers import Face
    from tests.support.world import World

CHOSEN = "worker-7"


@on([EXCLUSIVE])
@pytest.mark.parametrize("token", [CHOSEN, b"worker-7", "Grüße", "worker@web1"], ids=repr)
async def test_a_chosen_token_is_what_stands_at_the_name(a: World, token: Any) -> None:
    lock = a.lock(label="view pay")
    assert lock.raw.local.token is None
    assert await lock.acquire(token=token) is True

    expected = token if isinstance(token, bytes) else token.encode()
    assert a.client.get("lock:a") == expected
    assert lock.raw.local.token == expected
    assert lock.raw.token == expected.decode()
    with pytest.raises(AttributeError):
        lock.raw.local.token = b"another"
    with pytest.raises(LockBusy) as busy:
        await a.lock().take(0)
    assert busy.value.holder is not None
    assert busy.value.holder.label == "view pay"
    await lock.check()
    assert await lock.extend(5) is True
    assert await lock.reacquire() is True
    await lock.release()
    assert lock.raw.local.token is None
    assert a.is_free()


@on([EXCLUSIVE])
async def test_who_chose_a_token_waits_in_turn(a: World) -> None:
    held = await a.lock().take(0)
    first = a.lock()
    mine = a.spawn(first.acquire(blocking_timeout=20, token=CHOSEN))
    await a.waiting(1)
    behind = a.spawn(a.lock().take(20))
    await a.waiting(2)
    await held.release()
    assert await mine.result() is True
    assert a.direct.get("lock:a") == CHOSEN
    assert not behind.done()
    a.force()
    await (await behind.result()).release()


@on([EXCLUSIVE], real=True)
async def test_a_token_serves_again_though_the_server_did_not_know_the_scripts(a: World) -> None:
    for _ in range(2):
        a.direct.script_flush()
        lock = a.lock()
        assert await lock.acquire(blocking=False, token=CHOSEN) is True
        a.direct.script_flush()
        await lock.release()


@on([EXCLUSIVE])
async def test_a_token_that_was_forced_out_is_refused_and_not_replaced(a: World) -> None:
    assert await a.lock().acquire(token=CHOSEN)
    a.force()
    with pytest.raises(LockError, match="choose another one") as refused:
        await a.lock().acquire(token=CHOSEN)
    assert CHOSEN not in str(refused.value)
    assert a.is_free()


@on([EXCLUSIVE])
@pytest.mark.parametrize(
    "token",
    [
        *["", b"", b"\xff\x00", "\udc80", "read:x", "kept:x", "permits:1"],
        "a b",
    ],
    ids=repr,
)
async def test_what_cannot_be_a_token_is_refused(a: World, token: Any) -> None:
    with pytest.raises(ValueError, match="a token must") as refused:
        await a.lock().acquire(token=token)
    assert not isinstance(refused.value, LockError)
    assert a.is_free()


@on([EXCLUSIVE])
async def test_a_refused_token_is_not_shown(a: World) -> None:
    token = secrets.token_hex(8)
    with pytest.raises(ValueError, match="a token must") as refused:
        await a.lock().acquire(token=token.encode() + b"\xff")
    assert token not in "".join(traceback.format_exception(refused.value))


def token_of(lock: Any) -> Any:
    return lock.local.token


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_thread_sees_the_token_of_another_one_only_if_it_is_meant_to(a: World) -> None:
    for is_local, seen in ((True, None), (False, b"shared")):
        lock = a.lock(thread_local=is_local).raw
        lock.acquire(token="own" if is_local else "shared")
        assert in_thread(functools.partial(token_of, lock)) == seen
        lock.release()


async def spoiled(a: World, held: Face, spoil: str) -> None:
    if spoil == "is busy":
        await a.rival().take(0)
    elif spoil == "is released twice":
        await held.release()
    elif spoil == "is taken away":
        a.lose()
    elif spoil == "holds something else":
        a.direct.delete(a.kind.contested)
        a.direct.lpush(a.kind.contested, "x")
        await a.lock().take(0)
    await held.release()


@on([EXCLUSIVE, READERS, PERMITS, HOSTED])
async def test_no_log_and_no_error_shows_a_token(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    tokens, said = [], []
    with caplog.at_level(logging.DEBUG):
        for spoil in ("is busy", "is released twice", "is taken away", "holds something else"):
            held = await a.lock().take(0)
            tokens.append(held.token)
            with pytest.raises(LockError) as error:
                await spoiled(a, held, spoil)
            said += traceback.format_exception(error.value)
            said += [repr(error.value), repr(vars(error.value)), repr(held.raw)]
            with suppress(LockError):
                await held.release()
            a.direct.flushall()
    said.append(caplog.text)
    assert [token for token in tokens if token in "".join(said)] == []


@on([*ONE_SERVER[:3], SEVERAL])
async def test_who_finds_another_program_there_is_not_told_of_our_last_holder(a: World) -> None:
    async with a.rival(label="view pay").block():
        pass
    a.direct.set(a.kind.contested, "somebody", px=20_000)
    with pytest.raises(LockBusy) as busy:
        await a.lock().take(0)
    assert busy.value.holder is None
