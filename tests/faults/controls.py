"""Scripts with one of their rules taken out, to show what the rule is for."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django_setnx_lock.core.connections.connection import DedicatedConnection
from django_setnx_lock.core.protocol import scripts

if TYPE_CHECKING:
    import pytest


def take_out(monkeypatch: pytest.MonkeyPatch, script: str, rule: str, instead: str) -> None:
    """Run ``script`` (as ``ACQUIRE``) with ``instead`` wherever ``rule`` stands in it."""
    whole: scripts.Script = getattr(scripts, script)
    assert rule in whole.source, f"{rule!r} is not in {whole.name}.lua"
    source = whole.source.replace(rule, instead)
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    monkeypatch.setattr(scripts, script, replace(whole, source=source, sha=sha))


async def nothing(*args: Any, **options: Any) -> None:
    """Do nothing, in the place of a clean-up."""


def send_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what has no answer undone on another connection alone, as by who cannot wait there."""
    monkeypatch.setattr(DedicatedConnection, "send_behind", lambda self, commands: False)
