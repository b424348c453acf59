"""The redis-py client behind a django-redis cache. With cluster.py alone, imports django_redis."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string
from django_redis.cache import RedisCache
from django_redis.client import DefaultClient, ShardClient

from . import cluster
from .conf import get_config
from .core.masters.masters import Masters, masters_of


class _Caches(threading.local):
    """The caches of one thread, by alias: Django takes long to find them."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}


_caches = _Caches()


def get_client(using: str | None = None) -> Any:
    """The client of the cache alias ``using`` (None: the ``CACHE`` of SETNX_LOCK).

    Opens no connection yet. Raises ImproperlyConfigured when the alias is missing, is no
    django-redis cache, is sharded, or has settings that cannot be used.
    """
    alias = default_alias() if using is None else using
    cache = _caches.found.get(alias)
    try:
        if cache is None:
            cache = _caches.found[alias] = _cache_of(alias)
        return cache.client.get_client(write=True)
    except ImportError as error:
        message = f"the OPTIONS of the cache {alias!r} name what cannot be imported: {error}"
        raise ImproperlyConfigured(message) from error
    except ValueError:
        # Without the error's own text, which can quote a password from the URL.
        message = f"the LOCATION or OPTIONS of the cache {alias!r} cannot be understood"
        raise ImproperlyConfigured(message) from None


def masters(using: str | Sequence[str] | None) -> Masters | None:
    """What a Redlock of the cache aliases ``using`` is taken on; None for a single alias.

    Raises ValueError for aliases that cannot be masters, ImproperlyConfigured where they come from
    the settings, and as :func:`get_client`.
    """
    config = get_config()
    aliases = config["CACHE"] if using is None else using
    if isinstance(aliases, str):
        return None
    try:
        return masters_of(list(map(get_client, aliases)), aliases, config["MASTER_TIMEOUT"])
    except (TypeError, ValueError) as error:
        if using is not None:
            raise
        raise ImproperlyConfigured(f"SETNX_LOCK['CACHE'] is {aliases!r}: {error}") from error


def aliases_in(using: str | Sequence[str] | None) -> Sequence[str]:
    """The cache aliases that ``using`` names."""
    return () if using is None else (using,) if isinstance(using, str) else using


def default_alias() -> str:
    """The cache alias that the settings name, or the first of several."""
    alias = get_config()["CACHE"]
    return alias if isinstance(alias, str) or not alias else alias[0]


def _cache_of(alias: str) -> Any:
    problem = alias_problem(alias)
    if problem:
        raise ImproperlyConfigured(problem)
    return caches[alias]


@functools.cache
def alias_problem(alias: str) -> str | None:
    """Why locks cannot be kept in the cache ``alias``, or None. Opens no connection."""
    if alias not in settings.CACHES:
        return f"there is no cache {alias!r} in CACHES"
    if not is_django_redis(alias):
        return (
            f"the cache {alias!r} is not a django-redis cache: set its BACKEND to "
            f"'{RedisCache.__module__}.{RedisCache.__qualname__}', or name another cache"
        )
    if not settings.CACHES[alias].get("LOCATION"):
        return f"the cache {alias!r} has no LOCATION: write for example redis://127.0.0.1:6379/1"
    if is_sharded(alias):
        return f"the cache {alias!r} is sharded, and one lock must live on one server"
    problem = cluster_problem(alias)
    return problem and f"the cache {alias!r} cannot be used: {problem}"


def is_django_redis(alias: str) -> bool:
    """Whether the cache ``alias`` is one of django-redis."""
    return issubclass(_imported(settings.CACHES[alias].get("BACKEND", "")), RedisCache)


def is_sharded(alias: str) -> bool:
    """Whether the django-redis cache ``alias`` spreads its keys over several servers."""
    default = f"{DefaultClient.__module__}.{DefaultClient.__qualname__}"
    return issubclass(_imported(cache_options(alias).get("CLIENT_CLASS", default)), ShardClient)


def is_cluster(alias: str) -> bool:
    """Whether the cache ``alias`` lives in a Redis Cluster."""
    path = dict(settings.CACHES.get(alias, {}).get("OPTIONS") or {}).get("CLIENT_CLASS", "")
    return issubclass(_imported(path), cluster.ClusterClient)


def cluster_problem(alias: str) -> str | None:
    """Why the cache ``alias``, if it is a cluster's, cannot be at its LOCATION, or None."""
    location = settings.CACHES[alias].get("LOCATION") or ""
    return cluster.location_problem(location) if is_cluster(alias) else None


def database_of(alias: str) -> tuple[str, ...]:
    """Which servers and database the cache ``alias`` lives in, as written in CACHES."""
    location = settings.CACHES[alias].get("LOCATION") or ""
    places = location.split(",") if isinstance(location, str) else location
    written = [_without_credentials(str(place)) for place in places]
    return tuple(sorted([*written, *sentinels_of(alias)]))


def sentinels_of(alias: str) -> tuple[str, ...]:
    """The Sentinels that name the primary of the cache ``alias``; none where it has an address."""
    return tuple(sorted(str(tuple(one)) for one in cache_options(alias).get("SENTINELS") or ()))


def taken_for(alias: str) -> str | None:
    """A cache of other Sentinels that django-redis cannot tell from ``alias``, or None.

    It keeps its pools by LOCATION, whatever the OPTIONS are.
    """
    location, sentinels = settings.CACHES[alias].get("LOCATION"), sentinels_of(alias)
    return next(
        (
            other
            for other, cache in settings.CACHES.items()
            if is_django_redis(other)
            and cache.get("LOCATION") == location
            and sentinels_of(other) not in ((), sentinels)
        ),
        None,
    )


def redis_aliases() -> list[str]:
    """The cache aliases that locks can be kept in, the configured one first."""
    usable = [alias for alias in settings.CACHES if alias_problem(alias) is None]
    return sorted(usable, key=lambda alias: alias != default_alias())


def cache_options(alias: str) -> dict[str, Any]:
    """The OPTIONS of the cache ``alias``."""
    return dict(settings.CACHES[alias].get("OPTIONS") or {})


def socket_timeout_of(client: Any) -> tuple[float | None, bool]:
    """The seconds that a connection of ``client`` waits for an answer, and whether they were set.

    Opens no connection.
    """
    pool = client.connection_pool
    options = pool.connection_kwargs
    if "socket_timeout" in options:
        return options["socket_timeout"], True
    # It connects only when it is used.
    made = pool.connection_class(**options)
    return getattr(made, "socket_timeout", None), False


def has_own_factory(alias: str) -> bool:
    """Whether what makes the connections of the cache ``alias`` is not of django-redis."""
    usual = getattr(settings, "DJANGO_REDIS_CONNECTION_FACTORY", "django_redis.")
    path = str(cache_options(alias).get("CONNECTION_FACTORY", usual))
    return not path.startswith("django_redis.")


def _without_credentials(url: str) -> str:
    parts = urlsplit(url.strip())
    # As redis-py reads it: the query goes before the path.
    asked = dict(parse_qsl(parts.query)).get("db")
    if parts.scheme == "unix":
        return f"{parts.path}?db={asked or 0}"
    place = parts.netloc.rpartition("@")[2]
    # Not parts.port, which raises for what is no port: that is told where it is used.
    port = "" if re.search(r":\w+\Z", place) else ":6379"
    return f"{place}{port}/{asked or parts.path.strip('/') or 0}"


def _imported(path: str) -> type:
    try:
        found = import_string(path)
    except ImportError:
        return type(None)
    return found if isinstance(found, type) else type(None)


def _forget(*, setting: str, **kwargs: Any) -> None:
    global _caches
    if setting == "CACHES":
        alias_problem.cache_clear()
        # Those of all threads.
        _caches = _Caches()


setting_changed.connect(_forget, dispatch_uid="django_setnx_lock.connection")
