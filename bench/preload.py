"""What every worker needs, loaded once before they are made."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
django.setup()
for _name in ("redis_lock", "sherlock", "pottery", "portalocker", "django_setnx_lock"):
    # One that is missing is reported by the worker that needs it.
    with suppress(ImportError):
        import_module(_name)
_PARTS = ("solo", "contended", "idle", "takeover", "many", "pool", "transaction", "tasks")
for _part in (*_PARTS, "footprint", "capacity"):
    import_module(f"bench.{_part}")
