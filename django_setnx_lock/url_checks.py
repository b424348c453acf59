"""System checks of the locked views in the URLconf, one function each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.http import HttpRequest
from django.urls import get_resolver
from django.urls.converters import StringConverter

from .connection import alias_problem, aliases_in
from .decorators import LockOptions, options_of
from .signatures import (
    arguments_in,
    dotted_name,
    own_signature,
    signature_of,
    view_class_of,
)

# Stands in for what only a request brings.
_SOMETHING = object()
# The same, where it is the text of the URL.
_TEXT = object()
# What Django's middleware and REST framework add to the attributes a request is born with.
_ADDED = {"auser", "auth", "data", "query_params", "request", "session", "site", "user"}
# What a row is found by, as a rule: its text is not.
_LIKE_A_KEY = re.compile(r"(?:\A|_)(?:pk|id|uuid)\Z")


@dataclass(frozen=True, slots=True)
class _Route:
    """A route, with what it gives to its view."""

    text: str = ""
    callback: Any = None
    values: Mapping[str, Any] = field(default_factory=dict)
    unnamed: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """A lock that a route's view, or a method of it, is decorated with."""

    route: _Route
    func: Callable[..., Any]
    signature: inspect.Signature
    leading: Sequence[Any]
    options: LockOptions

    @property
    def where(self) -> str:
        return f"{dotted_name(self.func)} at {self.route.text!r}"

    def unfilled(self, *, attributes: bool) -> Iterator[str]:
        """The fields that the call does not fill: arguments, or attributes of the request."""
        arguments = self._arguments()
        if arguments is None:
            return
        for name in self.options.template.fields:
            root, dot, _ = name.partition(".")
            from_request = bool(dot) and root not in arguments
            if from_request is attributes and arguments.get(root) is None:
                yield name

    def texts(self) -> Iterator[str]:
        """The fields without a type or model that are named like a key, and are a URL's text."""
        arguments, options = self._arguments() or {}, self.options
        for name in dict.fromkeys(options.template.fields):
            has_type = name in options.template.types or name in options.parsers
            if not has_type and _LIKE_A_KEY.search(name) and arguments.get(name) is _TEXT:
                yield name

    def _arguments(self) -> dict[str, Any] | None:
        given = [*self.leading, *[_TEXT] * self.route.unnamed]
        try:
            return arguments_in(self.signature, given, self.route.values)
        except TypeError:
            return None  # a decorator in between changes the arguments, so nothing can be said


@register(Tags.urls)
def check_templates(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E010: each route gives its view what the key template names."""
    return [
        Error(
            f"The view {place.where} is locked by {place.options.template.text!r}, but neither "
            f"the route nor a default gives <{name}> a value.",
            hint=f"The route gives {', '.join(place.route.values) or 'no names'}. "
            "See docs/checks.md#e010.",
            id="django_setnx_lock.E010",
        )
        for place in _places()
        for name in place.unfilled(attributes=False)
    ]


@register(Tags.urls)
def check_aliases(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """E011: ``using`` names a cache that can hold locks."""
    return [
        Error(
            f"The view {place.where} is locked using={place.options.using!r}: {problem}.",
            hint="Name another alias, or leave using out. See docs/checks.md#e011.",
            id="django_setnx_lock.E011",
        )
        for place in _places()
        for alias in aliases_in(place.options.using)
        if (problem := alias_problem(alias)) is not None
    ]


@register(Tags.urls)
def check_attributes(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """W004: dotted names that are no argument are known attributes of the request."""
    known = _ADDED.union(dir(HttpRequest()))
    return [
        CheckWarning(
            f"The view {place.where} is locked by {place.options.template.text!r}, but "
            f"{root!r} is neither an argument of it nor an attribute that Django gives requests.",
            hint=f"If a middleware sets it, write <request.{name}>. See docs/checks.md#w004.",
            id="django_setnx_lock.W004",
        )
        for place in _places()
        for name in place.unfilled(attributes=True)
        if (root := name.partition(".")[0]) not in known
    ]


@register(Tags.urls)
def check_texts(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """W005: no key of a row is made of a text that has several spellings."""
    return [
        CheckWarning(
            f"The view {place.where} is locked by {place.options.template.text!r}, but the route "
            f"gives {name!r} as text. 42 and 042 may be one row there, and are two locks.",
            hint=f"Write <{name}:int> or <{name}:uuid>, or name the model, in @redis_lock; "
            f"<{name}:str> where each text is another row. See docs/checks.md#w005.",
            id="django_setnx_lock.W005",
        )
        for place in _places()
        for name in place.texts()
    ]


def _places() -> Iterator[_Place]:
    try:
        routes = list(_routes(get_resolver().url_patterns, _Route()))
    except Exception:  # noqa: BLE001 - a URLconf can fail in any way, and Django's checks tell it
        return
    for route in routes:
        yield from _locks_of(route)


def _routes(patterns: Iterable[Any], parent: _Route) -> Iterator[_Route]:
    for pattern in patterns:
        regex = pattern.pattern.regex
        is_resolver = hasattr(pattern, "url_patterns")
        fixed = pattern.default_kwargs if is_resolver else pattern.default_args
        groups = {name: _given_by(pattern.pattern, name) for name in regex.groupindex}
        values = {**parent.values, **groups, **fixed}
        # As Django does: named groups push the unnamed ones out.
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


def _given_by(pattern: Any, name: str) -> object:
    """What stands in for the value that ``pattern`` gives: _TEXT where nothing converts it."""
    converter = pattern.converters.get(name)
    # Those for a slug and a path are of the one for a str, as others may be that convert.
    is_text = converter is None or type(converter).to_python is StringConverter.to_python
    return _TEXT if is_text else _SOMETHING


def _locks_of(route: _Route) -> Iterator[_Place]:
    view: Any = route.callback
    while isinstance(view, partial):
        view = view.func
    view_class = view_class_of(view)
    if view_class is None:
        for options in options_of(view):
            yield _Place(route, view, signature_of(route.callback), [_SOMETHING], options)
        return
    # A dispatch method's locks are on the view too, as as_view() copies them.
    for options in options_of(view):
        yield _Place(route, view, own_signature(view), [_SOMETHING], options)
    actions = getattr(view, "actions", None)
    names = actions.values() if actions else view_class.http_method_names
    for handler in dict.fromkeys(getattr(view_class, name, None) for name in names):
        func = behind_api_view(handler)
        leading = [_SOMETHING, _SOMETHING] if func is handler else [_SOMETHING]
        for options in options_of(func):
            yield _Place(route, func, signature_of(func), leading, options)


def behind_api_view(handler: Any) -> Any:
    """The function that ``@api_view`` keeps in ``handler``, without functools.wraps, or itself."""
    if getattr(handler, "__module__", "") != "rest_framework.decorators":
        return handler
    return inspect.getclosurevars(handler).nonlocals.get("func")
