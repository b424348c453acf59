"""The ``SETNX_LOCK`` setting: defaults, read late, forgotten when a test overrides it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

SETTING = "SETNX_LOCK"

DEFAULTS: dict[str, Any] = {
    "CACHE": "default",
    "KEY_PREFIX": "lock:",
    "TIMEOUT": 30,
    "BLOCKING_TIMEOUT": 10,
    "RENEW": True,
    "REENTRANT": True,
    "INDEX": True,
    "RELEASE": "commit",
    "REPLICAS": 0,
    "PROTOCOL": "setnx",
    "UNIT": "ms",
    "POLLING": False,
    "MASTER_TIMEOUT": 0.1,
}


@lru_cache(maxsize=1)
def get_config() -> dict[str, Any]:
    """Every option with its value.

    Raises ImproperlyConfigured when SETNX_LOCK is no dict or has an option that does not exist:
    a misspelt CACHE would have one machine lock elsewhere than the others.
    """
    given = getattr(settings, SETTING, {})
    if not isinstance(given, dict):
        raise ImproperlyConfigured(f"{SETTING} must be a dict, not {type(given).__name__}")
    unknown = [name for name in given if name not in DEFAULTS]
    if unknown:
        raise ImproperlyConfigured(
            f"{SETTING} has an unknown option {unknown[0]!r}; known are: {', '.join(DEFAULTS)}"
        )
    return {**DEFAULTS, **given}


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == SETTING:
        get_config.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_setnx_lock.conf")
