"""Where the tests touch what the package keeps to itself: here, and in ``tests/wire``, alone.

Programs that tests start import it, too: pytest, which takes long, is imported when it is used.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import connections

import django_setnx_lock
from django_setnx_lock import connection, history, key_template
from django_setnx_lock.core import clock as clock
from django_setnx_lock.core.connections import backend, pipe, sentinel, session
from django_setnx_lock.core.connections import connection as own
from django_setnx_lock.core.inspection import lock_info
from django_setnx_lock.core.locks import heartbeat, layered, local, parent, renewal, several
from django_setnx_lock.core.process import current, here
from django_setnx_lock.core.protocol import requests
from django_setnx_lock.core.protocol.keys import index_for as index_for
from django_setnx_lock.core.protocol.keys import meta_key as meta_key
from django_setnx_lock.locks import make_one
from django_setnx_lock.options import LockOptions as LockOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType

    import pytest

    from django_setnx_lock.core import LockHandle, RedisLock


# Hand on the result of an operation that has ended: no handler of a signal is run there.
HANDS_ON: set[CodeType] = {backend.run.__code__, layered.RedisLock._take.__code__}
HANDS_ON.add(several.MultiLock._take.__code__)
# Nor here, but in the first instruction, which costs one lease at most.
HANDS_ON.add(local.Entry.leave.__code__)
# What Python calls as a block ends.
END_OF_BLOCK = local.Entry.__exit__.__code__
# Ends a block, as __exit__() does: what comes before its ``try`` no Python code can guard.
ENDS_BLOCK: set[CodeType] = {layered.LockHandle.finish.__code__}
_BACKENDS = (backend.Blocking, pipe.Asyncio)


def _renewals() -> list[renewal.Renewal]:
    sessions = list(here().sessions.values())
    found = [each for one in sessions for each in (one.renewal, *list(one.renewals.values()))]
    return [one for one in found if one is not None]


def reset() -> None:
    """Forget, between two tests, the locks that this process holds, and write the history."""
    # Else another test finds in its log why an entry could not be written.
    history.flush()
    for one in _renewals():
        one._grants.clear()
    current(False).holds.clear()


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
    for template in templates:
        key_template.KeyTemplate(template)
    key_template._match.cache_clear()


def any_lock(key: str, *, user: str = "", **options: Any) -> RedisLock:
    """Make the lock that a door makes, which knows the user, and whether others may hold it too."""
    return make_one(key, LockOptions(**options), user=user)


def waiting_for_the_end() -> list[Any]:
    """Return the handles that wait for the end of a transaction of this thread."""
    watches = [vars(one).get("_setnx_lock_watch") for one in connections.all()]
    return [held for watch in watches if watch is not None for held in watch.deferred]


def take_each(locks: Sequence[RedisLock]) -> list[Any]:
    """Take each of ``locks`` as an action of the admin does; a result has a handle or an error."""
    from django_setnx_lock.admin import actions

    return list(actions.take_each(locks))


def release_each(held: Sequence[LockHandle]) -> list[Any]:
    """Release each of ``held`` as the action of an admin does; return the errors."""
    return list(backend.run(several.release_each(backend.BLOCKING, held)))


def pass_time(seconds: float) -> None:
    """Have the local clock be ``seconds`` ahead, and what is due by then done now.

    It stays ahead: a clock that leases are counted on never goes back.
    """
    if not isinstance(clock.now, _Ahead):
        clock.now = _Ahead(clock.now)
    clock.now.seconds += seconds
    for one in _renewals():
        one.wake()


def pause_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing renewed in the background, and nobody looked after who was given a lock."""
    monkeypatch.setattr(renewal.Renewal, "_look", lambda self, now: [])


def list_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is taken be in the index at once, as what is held for half a second is."""
    register = renewal.Renewal.register

    def register_and_list(self: Any, grant: Any) -> None:
        register(self, grant)
        if not (grant.is_listed or grant.session.is_awaited) and len(grant.target.keys) > 2:
            grant.is_listed = True
            listing = grant.session.call(backend.BLOCKING, grant.renew_request(0), grant.key)
            with suppress(StopIteration):
                # Also where an event loop runs.
                listing.send(None)

    monkeypatch.setattr(renewal.Renewal, "register", register_and_list)


def note_tokens(monkeypatch: pytest.MonkeyPatch, made: list[str]) -> None:
    """Have each token that is made from now on be appended to ``made``."""

    def noted(size: int) -> bytes:
        made.append(os.urandom(size).hex())
        return bytes.fromhex(made[-1])

    monkeypatch.setattr("django_setnx_lock.core.locks.attempt.urandom", noted)


def end_renewals() -> None:
    """End the thread that renews, and with it its connections; the next lock has a new one."""
    for one in list(here().renewing):
        one.end()


def renew_now(*handles: LockHandle) -> None:
    """Have locks renewed at once, not after a third of their leases."""
    grants = [grant for held in handles for grant in held.grants]
    for grant in grants:
        grant.due = clock.now()
    for grant in grants:
        grant.renewal.wake()


def fails(held: LockHandle) -> bool:
    """Return whether the last renewal has failed."""
    return held.grant.trouble is not None


def look_faster(monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    """Have what looks at holders give up sooner those that say nothing."""
    monkeypatch.setattr(lock_info, "GRACE", lock_info.GRACE / times)


def process_key(prefix: str, process: str = "") -> str:
    """Return the key by which ``process`` says that it lives, or what all of them begin with."""
    return heartbeat.process_key(index_for(prefix), process)


def says_alive(prefix: str) -> dict[str, Any]:
    """Return the options of locks under ``prefix`` with which a process says that it lives."""
    return {"index": index_for(prefix)}


def say_faster(times: float) -> None:
    """Have this process say more often that it lives: for programs of tests alone."""
    for name in ("AFTER", "EVERY", "LASTS"):
        setattr(heartbeat, name, getattr(heartbeat, name) / times)


def ask_sentinels_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each call ask where the primary is, not one a second."""
    monkeypatch.setattr(sentinel, "EVERY", 0.01)


def after_scans(monkeypatch: pytest.MonkeyPatch, work: Callable[[int], None]) -> None:
    """Have ``work`` done with the port of a server whenever keys of it were looked through."""
    scan = session.Session.scan

    async def scan_and_work(self: session.Session, *given: Any) -> Any:
        found = await scan(self, *given)
        work(self.place[1][1])
        return found

    monkeypatch.setattr(session.Session, "scan", scan_and_work)


@contextmanager
def started_under(*handles: LockHandle) -> Iterator[None]:
    """Have this process hold the locks as one does that ``with_lock`` has started."""
    import pytest

    def forget() -> None:
        parent.environment = parent.Environment()

    with pytest.MonkeyPatch.context() as patched:
        for held in handles:
            patched.setenv(parent.VARIABLE, parent.described(held.grant, os.environ))
        forget()
        try:
            yield
        finally:
            forget()


def script(name: str) -> requests.Script:
    """Return a script of the package by its name, as ``ACQUIRE``: its ``source`` and ``sha``."""
    found: requests.Script = getattr(requests, name)
    return found


def send_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what has no answer undone on another connection alone, as by who cannot wait there."""
    for kind in _BACKENDS:
        monkeypatch.setattr(kind, "undo", lambda self, line, packed: False)


def package_root() -> Path:
    """Return the folder of the package: what a tracer is to interrupt."""
    return Path(django_setnx_lock.__file__).parent


def connection_steps(client: Any) -> list[tuple[type, str]]:
    """Return where the package waits for a server: methods of the connections to ``client``'s."""
    at = client.get_default_node().redis_connection if hasattr(client, "nodes_manager") else client
    kind = at.connection_pool.connection_class
    names = ("connect", "send_packed_command", "can_read", "read_response")
    return [(kind, name) for name in names]


def asyncio_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the fake's clients used in asyncio as they are elsewhere."""
    import fakeredis.aioredis

    twin = fakeredis.aioredis.FakeAsyncRedisConnection
    monkeypatch.setitem(own.TWINS, fakeredis.FakeRedisConnection, twin)


def nobody_is_dead(core: Any) -> None:
    """Have nobody looked after at the fake, where mail is fetched only once a thread runs."""
    core.script_cache[requests.LOOK.sha.encode()] = b"return false"


# What with_lock has to run first so that time passes between its look at processes and a signal.
SLOW_LOOKS = """
from django_setnx_lock.management.with_lock import guard

def family(*given, real=guard._family):
    import time
    found = real(*given)
    time.sleep(0.4)
    return found

guard._family = family
"""


# What with_lock has to run first to say when it knows that its command has ended.
SAYS_WHEN_ENDED = """
import os
from django_setnx_lock.management.with_lock.guard import Child

def wait(child, *given, real=Child.wait, say=os.write):
    lived = child.status is None
    real(child, *given)
    if lived and child.status is not None:
        say(1, b"ended\\n")

Child.wait = wait
"""
