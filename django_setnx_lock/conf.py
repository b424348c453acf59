"""The ``SETNX_LOCK`` setting: defaults, read late, forgotten when a test overrides it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from .core.options import checked_replicas, milliseconds, seconds_or_none, waiting_time
from .core.protocol.keys import meta_key
from .core.protocol.kinds import PROTOCOLS

APP = __package__
SETTING = "SETNX_LOCK"
MOST_ENTRIES = 100_000

DEFAULTS: dict[str, Any] = {
    "CACHE": "default",
    "KEY_PREFIX": "lock:",
    "TIMEOUT": 30,
    "BLOCKING_TIMEOUT": 10,
    "RENEW": True,
    "REENTRANT": True,
    "UNTIL_COMMIT": True,
    "REPLICAS": 0,
    "PROTOCOL": "setnx",
    "HISTORY": 1000,
    # Half of BLOCKING_TIMEOUT.
    "WAIT_WARNING": 5,
    "REQUIRE_REASON": False,
    "FAILURE_VIEW": "django_setnx_lock.views.lock_failure",
}


class Known:
    """What was made of the settings by this process, for all its threads.

    It is replaced as a whole when they change, so a thread that reads them at that moment keeps
    what it finds in one that nobody looks into any more. ``config``: :func:`get_config`.
    ``problems`` and ``clients``: by cache alias. ``plans``: of the locks, by their options.
    """

    def __init__(self) -> None:
        self.config: dict[str, Any] | None = None
        self.problems: dict[str, tuple[str, str] | None] = {}
        self.clients: dict[str, Any] = {}
        self.plans: dict[Any, Any] = {}


known = Known()


def get_config() -> dict[str, Any]:
    """Return every option with its value. Raises ImproperlyConfigured for what cannot be one."""
    here = known
    if here.config is None:
        here.config = _checked()
    return here.config


def _checked() -> dict[str, Any]:
    # A misspelt CACHE, say, would have one machine lock elsewhere than the others.
    if apps.apps_ready and not apps.is_installed(APP):
        raise ImproperlyConfigured(
            f"add {APP!r} to INSTALLED_APPS: without it nothing checks the settings, and a "
            "busy view has no page"
        )
    given = getattr(settings, SETTING, {})
    for _, problem, _ in problems(given):
        raise ImproperlyConfigured(problem)
    return {**DEFAULTS, **given}


def problems(given: object) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with the setting: the system check that tells it, a text and a hint."""
    if not isinstance(given, dict):
        text = f"{SETTING} must be a dict, not {type(given).__name__}"
        yield "E001", text, "Write it as a dict of options."
        return
    known_are = f"known are: {', '.join(DEFAULTS)}"
    for name in given:
        if name not in DEFAULTS:
            close = get_close_matches(str(name).upper(), DEFAULTS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else "Correct its name."
            yield "E001", f"{SETTING} has an unknown option {name!r}; {known_are}", hint
    for option, value in given.items():
        try:
            if option in _VALIDATORS:
                _VALIDATORS[option](value, f"{SETTING}[{option!r}]")
        except (TypeError, ValueError) as error:
            number = "E002" if option == "CACHE" else "E005"
            yield number, str(error), f"The default is {DEFAULTS[option]!r}."


def _must_be(text: str, is_so: Callable[[Any], bool]) -> Callable[[object, str], None]:
    def validate(value: object, what: str) -> None:
        if not is_so(value):
            raise ValueError(f"{what} is {text}, not {value!r}")

    return validate


def are_aliases(value: object) -> bool:
    """Return whether ``value`` is a cache alias, or a list or tuple of them."""
    several = value if isinstance(value, (list, tuple)) else [value]
    return bool(several) and all(isinstance(alias, str) for alias in several)


def _is_path(value: object) -> bool:
    parts = value.split(".") if isinstance(value, str) else []
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def _prefix(value: object, what: str) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{what} is a str that is not empty, not {value!r}")
    try:
        meta_key(f"{value}key")
    except ValueError as error:
        raise ValueError(f"{what} is {value!r}: {error}") from error


_VALIDATORS: dict[str, Callable[[Any, str], object]] = {
    "CACHE": _must_be("a cache alias or a list of them", are_aliases),
    "KEY_PREFIX": _prefix,
    "TIMEOUT": milliseconds,
    "BLOCKING_TIMEOUT": waiting_time,
    "REPLICAS": checked_replicas,
    "PROTOCOL": _must_be(f"one of {', '.join(map(repr, PROTOCOLS))}", PROTOCOLS.__contains__),
    "HISTORY": _must_be(
        f"a number of entries from 0 to {MOST_ENTRIES:,}",
        lambda value: type(value) is int and 0 <= value <= MOST_ENTRIES,
    ),
    "WAIT_WARNING": seconds_or_none,
    **dict.fromkeys(
        ("RENEW", "REENTRANT", "UNTIL_COMMIT", "REQUIRE_REASON"),
        _must_be("True or False", lambda value: isinstance(value, bool)),
    ),
    "FAILURE_VIEW": _must_be(
        "the dotted path of a callable (request, error) -> response, such as 'shop.views.busy'",
        _is_path,
    ),
}


def _forget(*, setting: str, **kwargs: Any) -> None:
    global known
    if setting in (SETTING, "CACHES", "INSTALLED_APPS"):
        known = Known()


setting_changed.connect(_forget, dispatch_uid="django_setnx_lock.conf")
