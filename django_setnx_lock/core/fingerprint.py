"""What stands for a holder's token on a page, in an answer and in a log."""

from __future__ import annotations

import hashlib


def fingerprint_of(name: str, *tokens: bytes) -> str:
    """Return what stands for ``tokens``, by which the lock ``name`` is held, and hides them."""
    return hashlib.sha256(b"\0".join([name.encode(), *tokens])).hexdigest()[:32]
