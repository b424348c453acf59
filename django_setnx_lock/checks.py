"""System checks of the settings, one function each. None opens a connection."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from redis.exceptions import RedisError

from . import connection
from .conf import DEFAULTS, SETTING
from .core import dialects, protocol
from .core.keys import lock_keys
from .core.line import CONNECT_WITHIN
from .core.masters.masters import FEWEST
from .transactions import RELEASES


def _config() -> dict[str, Any]:
    """The options, as far as they can be read: E001 speaks of the rest."""
    given = getattr(settings, SETTING, {})
    return {**DEFAULTS, **given} if isinstance(given, dict) else DEFAULTS


def _aliases() -> list[Any]:
    """What CACHE names: one alias, or several for a Redlock. E002 speaks of too few."""
    named = _config()["CACHE"]
    if not isinstance(named, (list, tuple)):
        return [named]
    return list(named) if len(named) >= FEWEST else []


def _exists(alias: Any) -> bool:
    return isinstance(alias, str) and alias in settings.CACHES


def _not_redis(alias: Any) -> bool:
    """Whether E002 or E003 speak of the alias already."""
    return not _exists(alias) or not connection.is_django_redis(alias)


def _hint(text: str, anchor: str) -> str:
    return f"{text} See docs/checks.md#{anchor.lower()}."


def _error(number: str, message: str, hint: str) -> list[CheckMessage]:
    return [Error(message, hint=_hint(hint, number), id=f"django_setnx_lock.{number}")]


def _warning(number: str, message: str, hint: str) -> list[CheckMessage]:
    return [CheckWarning(message, hint=_hint(hint, number), id=f"django_setnx_lock.{number}")]


@register(Tags.caches)
def check_options(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E001: SETNX_LOCK is a dict of known options."""
    given = getattr(settings, SETTING, {})
    if not isinstance(given, dict):
        return _error("E001", f"{SETTING} is not a dict.", "Write it as a dict of options.")
    found: list[CheckMessage] = []
    for name in given:
        if name not in DEFAULTS:
            close = get_close_matches(str(name).upper(), DEFAULTS, n=1)
            meant = f"Did you mean {close[0]!r}?" if close else f"Known are: {', '.join(DEFAULTS)}."
            found += _error("E001", f"{SETTING} has an unknown option {name!r}.", meant)
    return found


@register(Tags.caches)
def check_alias_exists(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E002: the cache that locks are kept in is in CACHES; each of several, three at least."""
    if not _aliases():
        return _error(
            "E002",
            f"{SETTING}['CACHE'] is {_config()['CACHE']!r}.",
            f"Name one cache alias, or {FEWEST} at least for a Redlock.",
        )
    return [
        message
        for alias in _aliases()
        if not _exists(alias)
        for message in _error(
            "E002",
            f"{SETTING}['CACHE'] names the cache {alias!r}, which is not in CACHES.",
            f"Name one of: {', '.join(map(repr, settings.CACHES))}.",
        )
    ]


@register(Tags.caches)
def check_alias_is_redis(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E003: that cache is one of django-redis."""
    return [
        message
        for alias in _aliases()
        if _exists(alias) and not connection.is_django_redis(alias)
        for message in _error(
            "E003",
            f"Locks are kept in the cache {alias!r}, whose backend "
            f"{settings.CACHES[alias].get('BACKEND')!r} is not django-redis.",
            "Set its BACKEND to 'django_redis.cache.RedisCache', or name another cache "
            f"in {SETTING}['CACHE'].",
        )
    ]


@register(Tags.caches)
def check_alias_is_one_server(
    app_configs: Sequence[Any] | None, **kwargs: Any
) -> list[CheckMessage]:
    """E004: that cache is not sharded by the client."""
    return [
        message
        for alias in _aliases()
        if not _not_redis(alias) and connection.is_sharded(alias)
        for message in _error(
            "E004",
            f"Locks are kept in the cache {alias!r}, which is sharded over several servers.",
            "A lock and what belongs to it must live on one server: use an alias with the "
            "default client.",
        )
    ]


@register(Tags.caches)
def check_cluster(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E012: a cache in a cluster can be one, and is no master of a Redlock."""
    found: list[CheckMessage] = []
    for alias in _aliases():
        if _not_redis(alias) or not connection.is_cluster(alias):
            continue
        problem = connection.cluster_problem(alias)
        if problem:
            message = f"Locks are kept in the cache {alias!r}, but {problem}."
            found += _error("E012", message, "Write redis://host:port/0, for one or more nodes.")
        if len(_aliases()) > 1:
            message = f"The cache {alias!r} is a cluster, and no master of a Redlock."
            hint = "Name caches of a single server each, or the cluster alone."
            found += _error("E012", message, hint)
    return found


@register(Tags.caches)
def check_sentinels(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E013: django-redis reaches the Sentinels of that cache, and not those of another one."""
    return [
        message
        for alias in _aliases()
        if not _not_redis(alias) and (other := connection.taken_for(alias))
        for message in _error(
            "E013",
            f"The caches {alias!r} and {other!r} have one LOCATION and different SENTINELS. "
            "django-redis keeps one connection pool for both, so locks may be kept at either.",
            "Give them different names of services or databases.",
        )
    ]


@register(Tags.caches)
def check_times(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E005: TIMEOUT, BLOCKING_TIMEOUT and MASTER_TIMEOUT are usable numbers of seconds."""
    config = _config()
    found: list[CheckMessage] = []
    for option, validate in (
        ("TIMEOUT", protocol.milliseconds),
        ("BLOCKING_TIMEOUT", protocol.waiting_time),
        ("MASTER_TIMEOUT", protocol.milliseconds),
    ):
        try:
            validate(config[option], f"{SETTING}[{option!r}]")
        except ValueError as error:
            found += _error("E005", f"{error}.", f"The default is {DEFAULTS[option]}.")
    return found


@register(Tags.caches)
def check_prefix(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E006: KEY_PREFIX can begin a name."""
    prefix = _config()["KEY_PREFIX"]
    if isinstance(prefix, str) and prefix:
        try:
            lock_keys(f"{prefix}key")
        except ValueError as error:
            problem = str(error)
        else:
            return []
    else:
        problem = "it must be a str that is not empty"
    return _error(
        "E006", f"{SETTING}['KEY_PREFIX'] is {prefix!r}: {problem}.", "The default is 'lock:'."
    )


@register(Tags.caches)
def check_replicas(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E009: REPLICAS is a number of replicas."""
    value = _config()["REPLICAS"]
    if type(value) is int and value >= 0:
        return []
    return _error("E009", f"{SETTING}['REPLICAS'] is {value!r}.", "Write 0, or how many.")


@register(Tags.caches)
def check_switches(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E007: INDEX, RENEW and REENTRANT are True or False."""
    found: list[CheckMessage] = []
    for option in ("INDEX", "RENEW", "REENTRANT"):
        value = _config()[option]
        if not isinstance(value, bool):
            message = f"{SETTING}[{option!r}] is {value!r}."
            found += _error("E007", message, "Write True or False.")
    return found


@register(Tags.caches)
def check_protocol(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E008: PROTOCOL, UNIT and RELEASE are among those that there are."""
    found: list[CheckMessage] = []
    for option, known in (
        ("PROTOCOL", dialects.PROTOCOLS),
        ("UNIT", dialects.UNITS),
        ("RELEASE", RELEASES),
    ):
        value = _config()[option]
        if value not in known:
            message = f"{SETTING}[{option!r}] is {value!r}."
            found += _error("E008", message, f"Write one of: {', '.join(map(repr, known))}.")
    return found


@register(Tags.caches)
def check_polling(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E014: POLLING is True or False, and True only where it has an effect."""
    config = _config()
    polling, message = config["POLLING"], f"{SETTING}['POLLING'] is {config['POLLING']!r}"
    if not isinstance(polling, bool):
        return _error("E014", f"{message}.", "Write True or False.")
    if polling and config["PROTOCOL"] == "timestamp":
        hint = "With PROTOCOL 'timestamp' nobody is woken anyway: leave POLLING out."
        return _error("E014", f"{message}, and PROTOCOL 'timestamp'.", hint)
    if polling and not isinstance(config["CACHE"], str):
        hint = "Nobody is woken with a Redlock anyway: leave POLLING out, or name one cache."
        return _error("E014", f"{message}, and CACHE names several caches.", hint)
    return []


@register(Tags.caches)
def check_socket_timeout(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """W001: socket_timeout is not shorter than a wait."""
    config = _config()
    alias, wait = config["CACHE"], config["BLOCKING_TIMEOUT"]
    # A Redlock has times of its own for its masters, and a wait through Sentinels goes on.
    if _not_redis(alias) or isinstance(wait, bool) or connection.sentinels_of(alias):
        return []
    options = connection.cache_options(alias)
    limit = (options.get("CONNECTION_POOL_KWARGS") or {}).get(
        "socket_timeout", options.get("SOCKET_TIMEOUT")
    )
    if not isinstance(limit, (int, float)) or not (wait is None or isinstance(wait, (int, float))):
        return []
    if wait is not None and limit >= wait:
        return []
    return _warning(
        "W001",
        f"The cache {alias!r} has a socket timeout of {limit:g} s, shorter than "
        + ("a wait without limit." if wait is None else f"the {wait:g} s a caller may wait."),
        "A server that stalls for longer than the socket timeout ends the wait with "
        "LockUnavailable. Raise SOCKET_TIMEOUT, or lower BLOCKING_TIMEOUT.",
    )


@register(Tags.caches)
def check_no_socket_timeout(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """W006: there is a socket timeout."""
    alias = _config()["CACHE"]
    # A Redlock and a cluster have times of their own, and another factory may do anything.
    if (
        _not_redis(alias)
        or connection.alias_problem(alias) is not None
        or connection.is_cluster(alias)
        or connection.has_own_factory(alias)
    ):
        return []
    try:
        limit, _ = connection.socket_timeout_of(connection.get_client(alias))
    except (ImproperlyConfigured, TypeError, AttributeError, RedisError):
        # What is wrong with its OPTIONS is told when it is used.
        return []
    if limit is not None:
        return []
    return _warning(
        "W006",
        f"The cache {alias!r} has no socket timeout: a server that hangs keeps whoever uses it "
        f"without limit, and each call of a lock for {CONNECT_WITHIN:g} s.",
        "Set SOCKET_TIMEOUT and SOCKET_CONNECT_TIMEOUT in its OPTIONS.",
    )


@register(Tags.caches)
def check_clear(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """W002: cache.clear() does not flush the locks."""
    return [message for alias in _aliases() for message in _clearing(alias)]


def _clearing(alias: Any) -> list[CheckMessage]:
    if _not_redis(alias):
        return []
    place = connection.database_of(alias)
    sharers = [
        other
        for other in settings.CACHES
        if other != alias
        and connection.is_django_redis(other)
        and connection.database_of(other) == place
    ]
    if alias != "default" and not sharers:
        return []
    culprit = sharers[0] if alias != "default" else alias
    return _warning(
        "W002",
        f"clear() of the cache {culprit!r} empties the database that the locks are in, "
        "and lets every holder's lock go.",
        _a_place_apart(alias),
    )


def _a_place_apart(alias: str) -> str:
    if connection.is_cluster(alias):
        return (
            "A cluster has one database: keep the locks in another cluster, or on a server of "
            f"their own, and name that alias in {SETTING}['CACHE']; or do not call clear()."
        )
    return (
        "Give the locks an alias of their own with a database of its own (…/1 in its "
        f"LOCATION) and name it in {SETTING}['CACHE']."
    )
