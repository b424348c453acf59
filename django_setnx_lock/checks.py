"""System checks of the settings and of the locked views. No check opens a connection."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.conf import settings
from django.core import mail
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ViewDoesNotExist
from django.urls import get_callable, get_resolver
from django.urls.converters import StringConverter

from . import connection
from .arguments import (
    arguments_in,
    dotted_name,
    own_signature,
    signature_of,
    view_class_of,
)
from .conf import APP, DEFAULTS, SETTING, are_aliases, problems
from .connection import is_cluster
from .core.errors import docs_url
from .decorators import DecoratedLock, options_of
from .key_template import KeyTemplate

# Stands in for a value that only a request brings.
_SOMETHING = object()
# The same, where the value is text of the URL.
_TEXT = object()
_OF_USER = ("user.", "request.user.")
_LOGIN = "django.contrib.auth.middleware.LoginRequiredMiddleware"
_ANSWERS = f"{APP}.middleware.LockMiddleware"
# Names of fields that usually find a row, where one value may have several texts.
_LIKE_A_KEY = re.compile(r"(?:\A|_)(?:pk|id|uuid)\Z")


def message(number: str, text: str, hint: str, obj: Any = None, kind: Any = None) -> CheckMessage:
    """Return the message ``E...``, ``W...`` or ``D...``; its hint ends with where to read on."""
    usual = Error if number.startswith("E") else CheckWarning
    hint = f"{hint} See {docs_url('troubleshooting', number)}"
    made: CheckMessage = (kind or usual)(text, hint=hint, obj=obj, id=f"django_setnx_lock.{number}")
    return made


def unusable_caches(
    what: str, using: str | Sequence[str] | None, obj: Any = None
) -> Iterator[CheckMessage]:
    """Yield E011 for each cache that ``using`` of ``what`` names and that cannot hold locks."""
    for alias in connection.aliases_in(using):
        if wrong := connection.client_problem(alias):
            text = f"{what} is locked using={using!r}: {wrong[1]}."
            yield message("E011", text, "Name another alias, or leave using out.", obj)


def _setting(name: str) -> Any:
    """Return that option, as far as it can be read; other checks tell what is wrong with it."""
    given = getattr(settings, SETTING, {})
    return (given if isinstance(given, dict) else {}).get(name, DEFAULTS[name])


@register(Tags.caches)
def check_options(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E001, E002, E005, E016: SETNX_LOCK is a dict of options with values that they can have."""
    wrong = list(problems(getattr(settings, SETTING, {})))
    try:
        # What is no path is told of already.
        if not wrong:
            get_callable(_setting("FAILURE_VIEW"))
    except (ImportError, ViewDoesNotExist) as error:
        text = f"{SETTING}['FAILURE_VIEW'] cannot be imported: {error}"
        wrong = [("E016", text, f"The default is {DEFAULTS['FAILURE_VIEW']!r}.")]
    return [message(number, f"{text}.", hint) for number, text, hint in wrong]


@register(Tags.caches)
def check_caches(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E002, E003, E004, E012, E013, E015, W002: the caches can hold locks, and keep them."""
    named = _setting("CACHE")
    aliases = connection.aliases_in(named) if are_aliases(named) else ()
    found = [one for alias in dict.fromkeys(aliases) for one in of_cache(alias)]
    for alias in aliases:
        if len(aliases) > 1 and connection.alias_problem(alias) is None and is_cluster(alias):
            text = f"The cache {alias!r} is a cluster, and no master of a Redlock."
            hint = "Name caches of a single server each, or the cluster alone."
            found.append(message("E012", text, hint))
    try:
        if aliases and not any(one.is_serious() for one in found):
            connection.masters(named)
    except ValueError as error:
        text = f"{SETTING}['CACHE'] is {named!r}: {error}."
        return [message("E002", text, "Name one cache, or one of each master.")]
    return found


def of_cache(alias: str) -> Iterator[CheckMessage]:
    """Yield what keeps the cache ``alias`` from holding locks, or what can cost them there."""
    if wrong := connection.client_problem(alias):
        number, text = wrong
        names, kind = ", ".join(map(repr, settings.CACHES)), None
        hint = f"Correct it in CACHES, or name another in {SETTING}['CACHE']. There are: {names}."
        # Test runners make the outbox. The kit for tests may take the place of any cache.
        if hasattr(mail, "outbox") and number not in {"E002", "E012"}:
            if f"{APP}.testing.helpers" in sys.modules:
                return
            kind = CheckWarning
            hint += (
                f" In tests, LockTestMixin has a server in memory instead: {docs_url('testing')}"
            )
        yield message(number, f"No lock can be taken: {text}.", hint, kind=kind)
        return
    others = [one for one in settings.CACHES if one != alias and not connection.client_problem(one)]
    place, sentinels = settings.CACHES[alias]["LOCATION"], connection.sentinels_of(alias)
    for other in others:
        is_there = settings.CACHES[other]["LOCATION"] == place
        if is_there and connection.sentinels_of(other) not in ((), sentinels):
            text = (
                f"The caches {alias!r} and {other!r} have one LOCATION and different SENTINELS. "
                "django-redis keeps one connection pool for both, so locks may be kept at either."
            )
            hint = "Give them different names of services or databases."
            yield message("E013", text, hint)
            break
    here = connection.database_of(alias)
    sharers = [other for other in others if connection.database_of(other) == here]
    if alias == "default" or sharers:
        text = (
            f"clear() of the cache {alias if alias == 'default' else sharers[0]!r} empties the "
            "database that the locks are in, and lets every holder's lock go."
        )
        hint = (
            "A cluster has one database: keep the locks in another cluster, or on a server of "
            f"their own, and name that alias in {SETTING}['CACHE']; or do not call clear()."
            if is_cluster(alias)
            else "Give the locks an alias of their own with a database of its own (…/1 in its "
            f"LOCATION) and name it in {SETTING}['CACHE']."
        )
        yield message("W002", text, hint)


@register(Tags.urls)
def check_middleware(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """W006: LockMiddleware is in MIDDLEWARE."""
    if _ANSWERS in settings.MIDDLEWARE:
        return []
    text = "A lock that is busy or lost inside a view is a 500, and a mail to ADMINS."
    return [message("W006", text, f"Add {_ANSWERS!r} to MIDDLEWARE, as its last line.")]


@dataclass(frozen=True, slots=True)
class _Route:
    """A route, and the values that it gives to its view."""

    text: str = ""
    callback: Any = None
    values: Mapping[str, Any] = field(default_factory=dict)
    unnamed: int = 0


@register(Tags.urls)
def check_views(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E010, E011, W005, W007: each route gives its locked view what the lock needs."""
    try:
        routes = list(_routes(get_resolver().url_patterns, _Route()))
    except Exception:  # noqa: BLE001 - a URLconf can fail in any way, and Django's checks tell it
        return []
    return [found for route in routes for found in _of_route(route)]


def _of_lock(
    route: _Route,
    func: Callable[..., Any],
    signature: inspect.Signature,
    leading: Sequence[Any],
    decorated: DecoratedLock,
) -> Iterator[CheckMessage]:
    """Yield what is wrong with a lock that a route's view, or a method of it, is decorated with."""
    view = f"The view {dotted_name(func)} at {route.text!r}"
    yield from unusable_caches(view, decorated.options.using)
    try:
        given = [*leading, *[_TEXT] * route.unnamed]
        arguments = arguments_in(signature, given, route.values)
    except TypeError:
        return  # a decorator in between changes the arguments, so nothing can be said
    for template in decorated.templates:
        locked = f"{view} is locked by {template.text!r}, but"
        yield from _of_template(route, locked, template, arguments)


def _of_template(
    route: _Route, locked: str, template: KeyTemplate, arguments: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    for name in dict.fromkeys(template.fields):
        root, dot, _ = name.partition(".")
        is_of_request = dot and root not in arguments
        if not is_of_request and arguments.get(root) is None:
            text = f"{locked} neither the route nor a default gives <{name}> a value."
            hint = f"The route gives {', '.join(route.values) or 'no names'}."
            yield message("E010", text, hint)
        is_user = name.startswith("request.user." if "user" in arguments else _OF_USER)
        if is_user and not _requires_login(route.callback):
            text = f"{locked} nothing requires a login: anonymous visitors get 403 for <{name}>."
            yield message("W007", text, "Write @login_required above @redis_lock.")
        if name not in template.types and _LIKE_A_KEY.search(name) and arguments.get(name) is _TEXT:
            text = f"{locked} the route gives {name!r} as text. 42 and 042 may be one row there, "
            text += "and are two locks."
            hint = f"Write <{name}:int> or <{name}:uuid> in the key; "
            hint += f"<{name}:str> where each text is another row."
            yield message("W005", text, hint)


def _requires_login(view: Any) -> bool:
    """Return whether a login is required by what can be seen of ``view`` and the middleware."""
    is_checked = _LOGIN in settings.MIDDLEWARE and getattr(view, "login_required", True)
    # Of login_required and its like; of the admin; of a LoginRequiredMixin; a view of REST
    # framework has permissions.
    marks = ("redirect_field_name", "admin_site", "model_admin", "cls")
    is_mixed_in = hasattr(view_class_of(view), "handle_no_permission")
    return is_checked or is_mixed_in or any(hasattr(view, mark) for mark in marks)


def _routes(patterns: Iterable[Any], parent: _Route) -> Iterator[_Route]:
    for pattern in patterns:
        regex = pattern.pattern.regex
        is_resolver = hasattr(pattern, "url_patterns")
        fixed = pattern.default_kwargs if is_resolver else pattern.default_args
        # The converters for slug and path inherit from that for str; others that convert may, too.
        converters = {name: type(one).to_python for name, one in pattern.pattern.converters.items()}
        is_text = StringConverter.to_python
        groups = {
            name: _TEXT if converters.get(name, is_text) is is_text else _SOMETHING
            for name in regex.groupindex
        }
        values = {**parent.values, **groups, **fixed}
        # Django does so: named groups push the unnamed ones out.
        own = 0 if regex.groupindex else regex.groups
        route = _Route(
            text=parent.text + str(pattern.pattern),
            callback=None if is_resolver else pattern.callback,
            values=values,
            unnamed=own + (0 if values else parent.unnamed),
        )
        if is_resolver:
            yield from _routes(pattern.url_patterns, route)
        else:
            yield route


def _of_route(route: _Route) -> Iterator[CheckMessage]:
    view: Any = route.callback
    while isinstance(view, partial):
        view = view.func
    view_class = view_class_of(view)
    # A dispatch method's locks are on the view too, as as_view() copies them.
    signature = own_signature(view) if view_class else signature_of(route.callback)
    for decorated in options_of(view):
        yield from _of_lock(route, view, signature, [_SOMETHING], decorated)
    if view_class is None:
        return
    actions = getattr(view, "actions", None)
    names = actions.values() if actions else view_class.http_method_names
    handlers: list[Any] = [getattr(view_class, name, None) for name in names]
    for handler in dict.fromkeys(handlers):
        for decorated in options_of(handler):
            leading = [_SOMETHING, _SOMETHING]
            yield from _of_lock(route, handler, signature_of(handler), leading, decorated)
