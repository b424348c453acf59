"""Where the tests touch what the package keeps to itself: here, and in ``tests/wire``, alone."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django_setnx_lock
from django_setnx_lock.core import clock as clock
from django_setnx_lock.core.connections import client_settings
from django_setnx_lock.core.connections.connection import Connection, DedicatedConnection
from django_setnx_lock.core.locks import owner, redlock
from django_setnx_lock.core.protocol import scripts
from django_setnx_lock.core.renewal import watchdog
from django_setnx_lock.management.with_lock import guard

if TYPE_CHECKING:
    import pytest


def reset() -> None:
    """Forget, between two tests, the locks that this process holds."""
    watchdog.WATCHDOG.forget_all()
    redlock.WATCHDOG.forget_all()
    owner.current().holds.clear()


class _Paused(watchdog.Watchdog):
    def _attend(self, due: float) -> None:
        """Do nothing: what falls due stays so."""


def pause_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing renewed in the background, and nobody looked after who was given a lock."""
    monkeypatch.setattr(watchdog, "WATCHDOG", _Paused())


def script(name: str) -> scripts.Script:
    """Return a script of the package by its name, as ``ACQUIRE``: its ``source`` and ``sha``."""
    found: scripts.Script = getattr(scripts, name)
    return found


def script_names() -> list[str]:
    return [name for name, one in vars(scripts).items() if isinstance(one, scripts.Script)]


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


def package_root() -> Path:
    """Return the folder of the package: a tracer interrupts what is in it."""
    return Path(django_setnx_lock.__file__).parent


def connection_steps(client: Any) -> list[tuple[type, str]]:
    """Return where the package waits for a server: methods of the connections to ``client``'s."""
    kind = client.connection_pool.connection_class
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


def no_celery_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no task of Celery's declared yet, nor those of the test for others."""
    from django_setnx_lock.contrib import celery

    monkeypatch.setattr(celery, "_named", {})


def changed_guard(folder: Path, *changes: tuple[str, str]) -> str:
    """Return what with_lock has to run first so that its guards are those of a changed program."""
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
