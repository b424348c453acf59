"""Has calls of locks that block refused in event loops, as Django's ORM has its own."""

from __future__ import annotations

from django.utils.asyncio import async_unsafe

from .core import blocking


def refuse(message: str) -> None:
    """Raise SynchronousOnlyOperation, unless DJANGO_ALLOW_ASYNC_UNSAFE is set."""
    async_unsafe(message)(_nothing)()


def _nothing() -> None:
    pass


blocking.refuse = refuse
