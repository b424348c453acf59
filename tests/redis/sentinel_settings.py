"""Settings of the tests, with a cache that Sentinels watch over: see sentinels.py."""

from __future__ import annotations

import os

from tests.redis.sentinels import VARIABLE, caches_at
from tests.settings import *  # noqa: F403 - the rest is the same

CACHES = caches_at([int(port) for port in os.environ[VARIABLE].split(",")])
