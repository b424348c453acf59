"""Interrupts at each call of the package's functions, where CPython runs handlers of signals."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tests.faults.points import traced
from tests.support import seams

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

PACKAGE = str(seams.package_root())


class Calls:
    """Raises ``error`` at the call number ``at`` of a function of the package, from 1.

    ``spares``: functions whose first instruction is not interrupted.
    """

    def __init__(
        self,
        at: int,
        spares: tuple[CodeType, ...] = (),
        error: type[BaseException] = KeyboardInterrupt,
    ) -> None:
        self.passed: list[str] = []
        self._at = at
        self._spares = spares
        self._error = error

    @property
    def has_interrupted(self) -> bool:
        return len(self.passed) >= self._at

    def run(self, work: Callable[[], object]) -> bool:
        """Return whether ``work`` was interrupted."""
        try:
            with traced(self._trace):
                work()
        except self._error:
            return True
        return False

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE) or code in self._spares:
            return None
        self.passed.append(code.co_name)
        if len(self.passed) == self._at:
            sys.settrace(None)
            raise self._error
        return None
