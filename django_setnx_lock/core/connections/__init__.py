"""How a request travels."""

from __future__ import annotations

from . import cluster, sentinel  # noqa: F401 - so that there are their sessions
