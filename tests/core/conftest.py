from __future__ import annotations

from tests.wire.conftest import fake_time, inspector, patient

__all__ = ["fake_time", "inspector", "patient"]
