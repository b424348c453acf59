"""The redis-py client behind a django-redis cache. With cluster.py alone, imports django_redis."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from django_redis.cache import RedisCache
from django_redis.client import DefaultClient, ShardClient

from . import cluster, conf
from .conf import get_config
from .core.connections.connection import refuse_own_calls
from .core.connections.quorum import Masters, masters_of
from .core.errors import LockUnsupported

# The seconds that each server of a Redlock has to be connected to and to answer.
MASTER_TIMEOUT = 0.1
_ADVICE = "write for example redis://127.0.0.1:6379/1"


def get_client(using: str | None = None) -> Any:
    """Return the client of the cache alias ``using`` (None: the ``CACHE`` of SETNX_LOCK).

    It is the same in all threads, unless the project has classes of its own that make it. Opens no
    connection yet. Raises ImproperlyConfigured when the alias is missing, is no django-redis cache,
    is sharded, or has settings that cannot be used.
    """
    here = conf.known
    alias = default_alias() if using is None else using
    if alias in here.clients:
        return here.clients[alias]
    try:
        if problem := alias_problem(alias):
            raise ImproperlyConfigured(problem[1])
        theirs: Any = caches[alias]
        client = theirs.client.get_client(write=True)
        if is_always_the_same(alias):
            # A client of redis-py is for all threads, as is its pool, which django-redis keeps, by
            # URL, for the life of the process. To close the cache empties that pool.
            here.clients[alias] = client
        return client
    except ImportError as error:
        message = f"the OPTIONS of the cache {alias!r} name what cannot be imported: {error}"
        raise ImproperlyConfigured(message) from error
    except ValueError:
        # Without the error's own text, which can quote a password from the URL.
        message = f"the LOCATION or OPTIONS of the cache {alias!r} cannot be understood"
        raise ImproperlyConfigured(f"{message}: {_ADVICE}") from None
    except (AttributeError, TypeError) as error:
        message = f"the LOCATION or OPTIONS of the cache {alias!r} are of a wrong type: {error}"
        raise ImproperlyConfigured(message) from error


def masters(using: str | Sequence[str] | None) -> Masters | None:
    """Return the servers of a Redlock; None for one alias. Raises ValueError for bad aliases."""
    aliases = get_config()["CACHE"] if using is None else using
    if isinstance(aliases, str):
        return None
    try:
        return masters_of(list(map(get_client, aliases)), aliases, MASTER_TIMEOUT)
    except (TypeError, ValueError) as error:
        if using is not None:
            raise
        raise ImproperlyConfigured(f"SETNX_LOCK['CACHE'] is {aliases!r}: {error}") from error


def aliases_in(using: str | Sequence[str] | None) -> Sequence[str]:
    """Return the cache aliases that ``using`` names."""
    return () if using is None else (using,) if isinstance(using, str) else using


def default_alias() -> str:
    """Return the cache alias that the settings name, or the first of several."""
    return aliases_in(get_config()["CACHE"])[0]


def steady_client(using: str | None = None) -> Any:
    """Return the client as :func:`get_client` does; None where it may be another each time."""
    alias = default_alias() if using is None else using
    is_chosen = alias_problem(alias) is None and not is_always_the_same(alias)
    return None if is_chosen else get_client(alias)


def is_always_the_same(alias: str) -> bool:
    """Return whether all that makes the client of the cache ``alias`` is django-redis's, or ours.

    What a project has of its own may choose another client each time.
    """
    makers = (settings.CACHES[alias]["BACKEND"], _option(alias, "CLIENT_CLASS"), _factory(alias))
    return all(path.startswith(("django_redis.", f"{__package__}.")) for path in makers)


def alias_problem(alias: str) -> tuple[str, str] | None:
    """Return why locks cannot be kept in the cache ``alias``, or None. Opens no connection.

    It is the id of the system check that tells it, and a text.
    """
    found = conf.known.problems
    if alias not in found:
        found[alias] = _problem_of(alias)
    return found[alias]


def _problem_of(alias: str) -> tuple[str, str] | None:
    if alias not in settings.CACHES:
        return "E002", f"there is no cache {alias!r} in CACHES"
    backend = settings.CACHES[alias].get("BACKEND", "")
    if not issubclass(_imported(backend), RedisCache):
        return "E003", (
            f"the cache {alias!r} is not a django-redis cache, but {backend!r}: set its BACKEND to "
            f"'{RedisCache.__module__}.{RedisCache.__qualname__}', or name another cache"
        )
    if issubclass(_imported(_option(alias, "CLIENT_CLASS")), ShardClient):
        return "E004", f"the cache {alias!r} is sharded, and one lock must live on one server"
    location = settings.CACHES[alias].get("LOCATION")
    if not location:
        return "E015", f"the cache {alias!r} has no LOCATION: {_ADVICE}"
    problem = cluster.location_problem(location) if is_cluster(alias) else None
    return ("E012", f"the cache {alias!r} cannot be used: {problem}") if problem else None


def client_problem(alias: str) -> tuple[str, str] | None:
    """Return the same; makes the client, where django-redis does."""
    problem = alias_problem(alias)
    if problem or is_cluster(alias) or not _factory(alias).startswith("django_redis."):
        return problem
    try:
        refuse_own_calls(get_client(alias).__class__)
    except LockUnsupported as error:
        return "E015", str(error)
    except ImproperlyConfigured as error:
        # Django closes all caches it keeps, which fails for this one.
        with suppress(AttributeError):
            del caches[alias]
        return "E015", str(error)
    return None


def is_cluster(alias: str) -> bool:
    return issubclass(_imported(_option(alias, "CLIENT_CLASS")), cluster.ClusterClient)


def database_of(alias: str) -> tuple[str, ...]:
    """Return which servers and database the cache ``alias`` lives in, as written in CACHES."""
    places = []
    for url in cluster.urls_of(settings.CACHES[alias].get("LOCATION") or ""):
        with suppress(ValueError):
            url = str(cluster.address_in(url))
        places.append(url)
    return tuple(sorted([*places, *sentinels_of(alias)]))


def sentinels_of(alias: str) -> tuple[str, ...]:
    """Return the Sentinels of the cache ``alias``; none where its LOCATION is an address."""
    return tuple(sorted(str(tuple(one)) for one in _option(alias, "SENTINELS")))


def redis_aliases() -> list[str]:
    """Return the cache aliases that locks can be kept in, the configured one first."""
    usable = [alias for alias in settings.CACHES if alias_problem(alias) is None]
    return sorted(usable, key=lambda alias: alias != default_alias())


_USUAL = {"CLIENT_CLASS": f"{DefaultClient.__module__}.{DefaultClient.__qualname__}"}


def _option(alias: str, name: str) -> Any:
    """Return that one of the OPTIONS of the cache ``alias``; without it the usual one, or none."""
    return (settings.CACHES[alias].get("OPTIONS") or {}).get(name) or _USUAL.get(name, ())


def _factory(alias: str) -> str:
    """Return the path of what makes the connections of the cache ``alias``."""
    usual = getattr(settings, "DJANGO_REDIS_CONNECTION_FACTORY", "django_redis.")
    return str(_option(alias, "CONNECTION_FACTORY") or usual)


def _imported(path: str) -> type:
    """Return that class; another one where it cannot be imported."""
    try:
        found = import_string(path)
    except ImportError:
        return type(None)
    return found if isinstance(found, type) else type(None)
