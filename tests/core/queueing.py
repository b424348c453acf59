"""What these tests take of others until they have moved."""

from __future__ import annotations

from tests.support.locks import holder as holder
from tests.support.locks import listeners as listeners
from tests.wire.queueing import *  # noqa: F403 - all of it
