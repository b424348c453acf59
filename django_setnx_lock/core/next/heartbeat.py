"""The sign of life of this process: one short-lived key, however many locks it holds."""

from __future__ import annotations


def process_key(index: str, process: str) -> str:
    """Return the key by which ``process`` says that it lives; ``index``: where locks are listed."""
    return f"{index.removesuffix('index')}process:{process}"
