"""Keeps calls that block out of the threads in which an event loop runs."""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Callable

_MESSAGE = (
    "This call waits for Redis, and nothing else runs in the event loop of this thread meanwhile: "
    "use the method with the prefix a (async with, aacquire, arelease), or another thread."
)


def _raise(message: str) -> None:
    raise RuntimeError(message)


# What a call in an event loop is answered with. It may let it pass.
refuse: Callable[[str], None] = _raise


def check() -> None:
    """Return unless an event loop runs in this thread. Raises what :data:`refuse` does."""
    # Much quicker than get_running_loop(), which raises where there is none.
    if _get_running_loop() is not None:
        refuse(_MESSAGE)
