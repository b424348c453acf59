"""Every point at which a caller can be interrupted: where it speaks to a server, and any line."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import re
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support import seams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    import pytest
    import redis

# What a waiter sends before it sleeps.
_SLEEPS = re.compile(b"B[LR]POP")


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


@functools.cache
def _line_of_try(code: CodeType) -> int:
    lines, start = inspect.getsourcelines(code)
    return start + next((at for at, line in enumerate(lines) if line.strip() == "try:"), len(lines))


class Lines:
    """Interrupts this thread at the line number ``at`` of the package, from 1; 0: at none.

    ``passed``: the lines that were run. Those of ``__exit__``, and of ``but``, up to their
    ``try``, or to their end if they have none, are not counted: what comes before it no Python code
    can guard.
    """

    def __init__(self, at: int = 0, but: Callable[..., object] | None = None) -> None:
        self.passed: list[str] = []
        self._at = at
        self._answered_after = 0
        self._but = but and but.__code__
        self._root = str(seams.package_root())

    @property
    def surrounds_a_request(self) -> bool:
        """Whether lines were run before a request was answered, and lines after it."""
        return 0 < self._answered_after < len(self.passed)

    def run(self, work: Callable[[], object]) -> bool:
        """Run ``work``; return whether it was interrupted."""
        try:
            with traced(self._trace):
                work()
        except KeyboardInterrupt:
            return True
        return False

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        # A handler of a signal is run at calls and in loops: not while the result of an operation
        # that has ended is handed on.
        if not code.co_filename.startswith(self._root) or code in seams.HANDS_ON:
            if code.co_name == "read_response":
                self._answered_after = len(self.passed)
            return None
        is_end = code.co_name == "__exit__" or code is self._but or code in seams.ENDS_BLOCK
        is_guarded = not is_end or frame.f_lineno > _line_of_try(code)
        if event == "line" and is_guarded:
            self.passed.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
            if len(self.passed) == self._at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


class Points:
    """What the thread that made it does on connections, before and after each step.

    ``at``: the number of the step, from 1, where it is interrupted by ``error``; 0: at none.
    """

    def __init__(
        self, at: int = 0, error: BaseException | type[BaseException] = KeyboardInterrupt
    ) -> None:
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
            if name == "send_packed_command" and _SLEEPS.search(b"".join(map(_bytes, args[0]))):
                step = "sleep"
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
            if isinstance(self._error, BaseException):
                # What it was raised through before would be kept, with its connections.
                self._error.__traceback__ = self._error.__context__ = None
            raise self._error


def _bytes(part: Any) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()
