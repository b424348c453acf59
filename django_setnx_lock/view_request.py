"""The request that a view is called with, Django's or REST framework's."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpRequest
from django.utils.functional import LazyObject

_NAME = re.compile(r"(?:\A|_)req(?:uest)?\Z")


def takes_request(signature: inspect.Signature) -> bool:
    """Whether the callable could be given a request where :func:`request_in` finds it."""
    parameters = list(signature.parameters.values())
    return "request" in signature.parameters or any(
        param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD)
        or _NAME.search(param.name)
        or "Request" in str(param.annotation)
        for param in parameters[:2]
    )


def request_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The request a view is called with, Django's or REST framework's; None in another call.

    It is the first or second positional argument, or the one called ``request``.
    """
    for value in (*args[:2], kwargs.get("request")):
        if http_request(value) is not None:
            return value
    return None


def http_request(value: Any) -> HttpRequest | None:
    """The HttpRequest that ``value`` is, or wraps as REST framework's Request does."""
    # isinstance() and getattr() would evaluate a lazy object, and so query the database.
    if issubclass(type(value), HttpRequest):
        found: HttpRequest = value
        return found
    try:
        inner = object.__getattribute__(value, "_request")
    except AttributeError:
        return None
    return inner if issubclass(type(inner), HttpRequest) else None


def known_user(request: Any) -> str:
    """The name of the request's user where that is known without looking it up.

    A look-up would be a query, and make the response vary on the cookie.
    """
    http = http_request(request)
    if http is None:
        return ""
    user = vars(http).get("user")
    if issubclass(type(user), LazyObject):
        user = vars(http).get("_cached_user")
    get_username = getattr(user, "get_username", None)
    return str(get_username()) if get_username else ""
