"""What these tests take of others until they have moved."""

from __future__ import annotations

from tests.wire.timestamps import *  # noqa: F403 - all of it
