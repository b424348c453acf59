"""Every point at which a caller can be interrupted: where it speaks to a server, and any line."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from typing import TYPE_CHECKING, Any

from tests.support import seams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest
    import redis


@contextlib.contextmanager
def traced(trace: Callable[..., Any]) -> Iterator[None]:
    """Have ``trace`` called for each line that this thread runs in the block.

    No garbage is collected meanwhile: what that calls passes no interrupt on.
    """
    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()


class Points:
    """What the thread that made it does on connections, before and after each step.

    ``at``: the number of the step, from 1, where it is interrupted by ``error``.
    """

    def __init__(self, at: int = 0, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.passed: list[str] = []
        self._at = at
        self._error = error
        self._thread = threading.get_ident()
        self._looks_away = 0
        self._meanwhile: dict[str, Callable[[], object]] = {}

    def meanwhile(self, step: str, work: Callable[[], object]) -> None:
        """Have ``work`` done, once, just before ``step``."""
        self._meanwhile[step] = work

    @contextlib.contextmanager
    def looking_away(self) -> Iterator[None]:
        """Neither count nor interrupt."""
        self._looks_away += 1
        try:
            yield
        finally:
            self._looks_away -= 1

    def watch(self, client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
        """Watch all connections of the kind that ``client`` has."""
        for kind, name in seams.connection_steps(client):
            monkeypatch.setattr(kind, name, self._watched(name, getattr(kind, name)))

    def _watched(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def watched(connection: Any, *args: Any, **options: Any) -> Any:
            step = name
            if name == "send_packed_command" and b"BLPOP" in b"".join(map(_bytes, args[0])):
                step = "BLPOP"
            self._pass(f"before {step}")
            result = method(connection, *args, **options)
            self._pass(f"after {step}")
            return result

        return watched

    def _pass(self, step: str) -> None:
        if self._looks_away or threading.get_ident() != self._thread:
            return
        work = self._meanwhile.pop(step, None)
        if work is not None:
            with self.looking_away():
                work()
        self.passed.append(step)
        if len(self.passed) == self._at:
            raise self._error


def _bytes(part: Any) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()
