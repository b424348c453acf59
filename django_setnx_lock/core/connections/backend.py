"""The two ways to run an operation: in a thread, or in an event loop.

Operations are coroutines over a backend. On the blocking one nothing suspends, so the synchronous
method runs its operation with one ``send(None)``: :func:`run`.
"""

from __future__ import annotations

from typing import TypeAlias

from .blocking import Blocking
from .blocking import run as run
from .pipe import Asyncio

Backend: TypeAlias = Blocking | Asyncio
BLOCKING, ASYNCIO = Blocking(), Asyncio()
