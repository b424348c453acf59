"""Where the tests touch what the package keeps to itself: here, and in ``tests/wire``, alone.

Programs that tests start import it, too: pytest, which takes long, is imported when it is used.
"""

from __future__ import annotations

import hashlib
import math
import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import django_setnx_lock
from django_setnx_lock import connection, history, key_template, lock_core
from django_setnx_lock.core import clock as clock
from django_setnx_lock.core import liveness, lock_info
from django_setnx_lock.core.connections import backends, client_settings, execute, sentinel
from django_setnx_lock.core.connections.connection import Connection, DedicatedConnection
from django_setnx_lock.core.locks import owner, parent_process, redlock
from django_setnx_lock.core.locks.mailbox import SLICE_MS as SLICE_MS
from django_setnx_lock.core.next.connections import sentinel as next_sentinel
from django_setnx_lock.core.protocol import commands as commands
from django_setnx_lock.core.protocol import replies as replies
from django_setnx_lock.core.protocol import scripts as scripts
from django_setnx_lock.core.protocol.keys import heartbeat_prefix_for as heartbeat_prefix_for
from django_setnx_lock.core.protocol.keys import index_for as index_for
from django_setnx_lock.core.protocol.keys import lock_keys as lock_keys
from django_setnx_lock.core.renewal import (
    heartbeat,
    loop_watchdog,
    requests,
    scheduler,
    watchdog,
)
from django_setnx_lock.locks import make_one
from django_setnx_lock.management.with_lock import guard
from django_setnx_lock.options import LockOptions as LockOptions
from django_setnx_lock.transactions import AT_COMMIT as AT_COMMIT
from tests.support import next_core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType

    import pytest

    from django_setnx_lock.core import LockHandle, RedisLock


def _next() -> Any:
    """Return modules of the core that is built beside today's, by their names."""
    core = "django_setnx_lock.core.next"
    names = ("process", "protocol.requests", "connections.blocking", "connections.pipe")
    found = {name.rpartition(".")[2]: import_module(f"{core}.{name}") for name in names}
    return SimpleNamespace(**found)


# Hand on the result of an operation that has ended: no handler of a signal is run there.
HANDS_ON: set[CodeType] = {backends.run.__code__}
# Ends a block, as __exit__() does: what comes before its ``try`` no Python code can guard.
ENDS_BLOCK: set[CodeType] = set()
if next_core.IS_CHOSEN:
    ENDS_BLOCK.add(import_module("django_setnx_lock.core").LockHandle.finish.__code__)
    HANDS_ON.add(_next().blocking.run.__code__)
    HANDS_ON.add(import_module("django_setnx_lock.core").RedisLock._take.__code__)
    # Nor here, but in the first instruction, which costs one lease at most.
    HANDS_ON.add(import_module("django_setnx_lock.core.next.locks.local").Entry.leave.__code__)


def _backends_of_next() -> list[type]:
    return [_next().blocking.Blocking, _next().pipe.Asyncio]


def _renewals_of_next() -> list[Any]:
    sessions = list(_next().process.here().sessions.values())
    found = [each for one in sessions for each in (one.renewal, *list(one.renewals.values()))]
    return [renewal for renewal in found if renewal is not None]


def reset() -> None:
    """Forget, between two tests, the locks that this process holds, and write the history."""
    # Else another test finds in its log why an entry could not be written.
    history.flush()
    if next_core.IS_CHOSEN:
        for renewal in _renewals_of_next():
            renewal._grants.clear()
        _next().process.current(False).holds.clear()
    for dog in (watchdog.WATCHDOG, redlock.WATCHDOG):
        dog._held.clear()
        dog.heartbeats.clear()
        dog._checks.clear()
    owner.current().holds.clear()


class _Ahead:
    """A clock that is so many ``seconds`` ahead of another."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.seconds = 0.0

    def __call__(self) -> float:
        return self._now() + self.seconds


def wait_for_masters(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Give each server of a Redlock that the project's caches make so long."""
    patch.setattr(connection, "MASTER_TIMEOUT", seconds)


def known_templates() -> list[str]:
    """Return the templates that keys are matched with."""
    return list(key_template._known)


def know_templates(templates: list[str]) -> None:
    """Have keys be matched with these templates alone."""
    key_template._known.clear()
    key_template._known.update(dict.fromkeys(templates))
    key_template._match.cache_clear()
    key_template._pattern.cache_clear()


def any_lock(key: str, *, user: str = "", **options: Any) -> RedisLock:
    """Make the lock that a door makes, which knows the user, and whether others may hold it too."""
    return make_one(key, LockOptions(**options), user=user)


def commit_lock(client: Any, name: str) -> RedisLock:
    """Make a lock that is let go at the end of the transactions around its release."""
    if next_core.IS_CHOSEN:
        door: Any = import_module("django_setnx_lock.lock_core_coming")
        return door.CommitLock(client, name)  # type: ignore[no-any-return]  # it is not today's
    return django_setnx_lock.core.RedisLock(client, name, ending=AT_COMMIT)


def take_each(locks: Sequence[RedisLock]) -> list[Any]:
    """Take each of ``locks`` as an action of the admin does; a result has a handle or an error."""
    return list(lock_core.take_each(locks))


def release_each(held: Sequence[LockHandle]) -> list[Any]:
    """Release each of ``held`` as the action of an admin does; return the errors."""
    return list(lock_core.release_each(held))


def pass_time(seconds: float) -> None:
    """Have the local clock be ``seconds`` ahead, and what is due by then done now.

    It stays ahead: a clock that leases are counted on never goes back.
    """
    if not isinstance(clock.now, _Ahead):
        clock.now = _Ahead(clock.now)
    clock.now.seconds += seconds
    if next_core.IS_CHOSEN:
        for renewal in _renewals_of_next():
            renewal.wake()
    for dog in (redlock.WATCHDOG, *loop_watchdog.all_watchdogs()):
        dog.wake()


class _Paused(watchdog.Watchdog):
    def _attend(self, due: float) -> None:
        """Do nothing: what falls due stays so."""


def pause_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing renewed in the background, and nobody looked after who was given a lock."""
    monkeypatch.setattr(watchdog, "WATCHDOG", _Paused())
    if next_core.IS_CHOSEN:
        renewal: Any = import_module("django_setnx_lock.core.next.locks.renewal")
        monkeypatch.setattr(renewal.Renewal, "_look", lambda self, now: [])


def list_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is taken be in the index at once, as what is held for half a second is."""
    if not next_core.IS_CHOSEN:
        return
    renewal: Any = import_module("django_setnx_lock.core.next.locks.renewal")
    register = renewal.Renewal.register

    def register_and_list(self: Any, grant: Any) -> None:
        register(self, grant)
        if not (grant.is_listed or grant.session.is_awaited) and len(grant.target.keys) > 2:
            grant.is_listed = True
            listing = grant.session.call(renewal.BLOCKING, grant.renew_request(0), grant.key)
            with suppress(StopIteration):
                # Also where an event loop runs.
                listing.send(None)

    monkeypatch.setattr(renewal.Renewal, "register", register_and_list)


def end_renewals() -> None:
    """End the thread that renews, and with it its connections; the next lock has a new one."""
    for renewal in list(_next().process.here().renewing) if next_core.IS_CHOSEN else ():
        renewal.end()
    watchdog.WATCHDOG.before_fork()
    redlock.WATCHDOG.before_fork()


def renew_now(*handles: LockHandle) -> None:
    """Have locks renewed at once, not after a third of their leases."""
    if next_core.IS_CHOSEN:
        every: Any = handles
        grants = [grant for held in every for grant in held.grants]
        for grant in grants:
            grant.due = clock.now()
        for grant in grants:
            grant.renewal.wake()
        return
    for held in handles:
        held.lease.due = clock.now()
    for held in handles:
        held.watchdog.watch(held.grant)


def fails(held: LockHandle) -> bool:
    """Return whether the last renewal has failed."""
    if next_core.IS_CHOSEN:
        return held.grant.trouble is not None  # type: ignore[attr-defined]  # it is not of today's core
    return held.lease.trouble is not None


def look_faster(monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    """Have what looks at holders give up sooner those that say nothing."""
    monkeypatch.setattr(lock_info, "GRACE", liveness.GRACE / times)


def says_alive(prefix: str) -> dict[str, Any]:
    """Return the options of locks under ``prefix`` with which a process says that it lives."""
    if next_core.IS_CHOSEN:
        return {"index": index_for(prefix)}
    return {"heartbeat_prefix": heartbeat_prefix_for(prefix)}


def say_faster(times: float, *, never: bool = False) -> None:
    """Have this process say more often, or never, that it lives: for programs of tests alone."""
    if next_core.IS_CHOSEN:
        coming: Any = import_module("django_setnx_lock.core.next.heartbeat")
        for name in ("AFTER", "EVERY", "LASTS"):
            setattr(coming, name, getattr(coming, name) / times)
        if never:
            coming.AFTER = math.inf
        return
    for module in (heartbeat, scheduler):
        module.HEARTBEAT_AFTER /= times  # type: ignore[attr-defined]  # they import it
    heartbeat.HEARTBEAT_EVERY /= times  # type: ignore[attr-defined]
    heartbeat._LASTS_MS = str(round(liveness.HEARTBEAT_LASTS / times * 1000))
    if never:
        heartbeat.HEARTBEAT_AFTER = math.inf  # type: ignore[attr-defined]


def ask_sentinels_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each call ask where the primary is, not one a second."""
    monkeypatch.setattr(sentinel, "EVERY", 0.0)
    monkeypatch.setattr(next_sentinel, "EVERY", 0.01)


def wait_for_what_is_behind(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have an answer that came wait for so long for what was sent behind its request."""
    monkeypatch.setattr(execute, "SOON", seconds)


@contextmanager
def started_under(*handles: LockHandle) -> Iterator[None]:
    """Have this process hold the locks as one does that ``with_lock`` has started."""
    import pytest

    parent: Any = import_module("django_setnx_lock.core.next.locks.parent")

    def forget() -> None:
        parent_process.forget()
        parent.environment = parent.Environment()

    with pytest.MonkeyPatch.context() as patched:
        for held in handles:
            for name, told in lock_core.environment_under(held, os.environ).items():
                patched.setenv(name, told)
        forget()
        try:
            yield
        finally:
            forget()


def script(name: str) -> scripts.Script:
    """Return a script of the package by its name, as ``ACQUIRE``: its ``source`` and ``sha``."""
    if next_core.IS_CHOSEN:
        coming: Any = {"ACQUIRE_ALL": "SEVERAL", "RELEASE_ALL": "RELEASE"}.get(name, name)
        return getattr(_next().requests, coming)  # type: ignore[no-any-return]  # it has these two
    found: scripts.Script = getattr(scripts, name)
    return found


def mutate(monkeypatch: pytest.MonkeyPatch, name: str, rule: str, instead: str) -> None:
    """Run the script ``name`` with ``instead`` wherever ``rule`` stands in it."""
    whole = script(name)
    assert rule in whole.source, f"{rule!r} is not in {whole.name}.lua"
    source = whole.source.replace(rule, instead)
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    monkeypatch.setattr(scripts, name, replace(whole, source=source, sha=sha))


def send_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what has no answer undone on another connection alone, as by who cannot wait there."""
    monkeypatch.setattr(DedicatedConnection, "send_behind", lambda self, commands: False)
    for kind in _backends_of_next():
        monkeypatch.setattr(kind, "undo", lambda self, line, packed: False)


def clean_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take out what undoes an operation that was interrupted or cancelled."""

    async def nothing(*args: Any) -> None:
        pass

    for backend in (backends.Blocking, backends.Asyncio, *_backends_of_next()):
        monkeypatch.setattr(backend, "shield", nothing)
    send_nothing_behind(monkeypatch)


def package_root() -> Path:
    """Return the folder of the package: what a tracer is to interrupt."""
    return Path(django_setnx_lock.__file__).parent


def connection_steps(client: Any) -> list[tuple[type, str]]:
    """Return where the package waits for a server: methods of the connections to ``client``'s."""
    kind = client.connection_pool.connection_class
    if next_core.IS_CHOSEN:
        names = ("connect", "send_packed_command", "can_read", "read_response")
        return [(kind, name) for name in names]
    return [
        *((kind, name) for name in ("send_packed_command", "can_read", "read_response")),
        # Not the connection's own, of which a thread makes use, and who throws it away.
        *((Connection, name) for name in ("connect", "close")),
    ]


def asyncio_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the fake's clients used in asyncio as they are elsewhere."""
    import fakeredis.aioredis

    twin = fakeredis.aioredis.FakeAsyncRedisConnection
    monkeypatch.setitem(client_settings.TWINS, fakeredis.FakeRedisConnection, twin)


def look_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have whom a lock was given to looked after when its time to take the lock is over."""
    monkeypatch.setattr(requests, "_FIRST_CHECK", requests._AFTER_CLAIM)


def no_celery_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no task of Celery's declared yet, nor those of the test for others."""
    from django_setnx_lock.contrib import celery

    monkeypatch.setattr(celery, "_named", {})


# What with_lock has to run first so that time passes between its look at processes and a signal.
SLOW_LOOKS = """
from django_setnx_lock.management.with_lock import guard

def family(*given, real=guard.family, **named):
    import time
    found = real(*given, **named)
    time.sleep(0.4)
    return found

guard.family = family
"""


# What with_lock has to run first to say when it knows that its command has ended.
SAYS_WHEN_ENDED = """
import os
from django_setnx_lock.management.with_lock.child import Child

def look(child, *given, real=Child.look, say=os.write):
    lived = child.status is None
    real(child, *given)
    if lived and child.status is not None:
        say(1, b"ended\\n")

Child.look = look
"""


# What with_lock has to run first to wait for its release after a signal, on a busy machine too.
PATIENT = """
from django_setnx_lock.management.with_lock import supervisor

supervisor._RELEASE_AT_LEAST = supervisor._RELEASE_WITHIN
"""


def changed_guard(folder: Path, *changes: tuple[str, str]) -> str:
    """Return what with_lock has to run first so that its guard is a changed program."""
    text = Path(guard.__file__).read_text()
    for before, after in changes:
        assert text.count(before) == 1
        text = text.replace(before, after)
    changed = folder / "changed_guard.py"
    changed.write_text(text)
    return f"""
from importlib.util import module_from_spec, spec_from_file_location
from django_setnx_lock.management.with_lock import child
spec = spec_from_file_location("changed", {str(changed)!r})
child.guard = module_from_spec(spec)
spec.loader.exec_module(child.guard)
"""
