"""Scripts with one of their rules taken out, to show what the rule is for."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from django_setnx_lock.core import scripts

if TYPE_CHECKING:
    import pytest


def take_out(monkeypatch: pytest.MonkeyPatch, script: str, rule: str, instead: str) -> None:
    """Run ``script`` (as ``ACQUIRE``) with ``instead`` in the place of ``rule``."""
    whole: scripts.Script = getattr(scripts, script)
    assert whole.source.count(rule) == 1, f"{rule!r} is not, or not once, in {whole.name}.lua"
    source = whole.source.replace(rule, instead)
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    monkeypatch.setattr(scripts, script, replace(whole, source=source, sha=sha))
