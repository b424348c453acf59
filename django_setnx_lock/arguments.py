"""The parameters of a callable, and the arguments of one call, a view's request among them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.utils.functional import LazyObject

if sys.version_info >= (3, 14):
    from annotationlib import Format

    # Annotations may name what is imported for type checkers only.
    _signature = partial(inspect.signature, annotation_format=Format.STRING)
else:
    _signature = inspect.signature

_ANYTHING = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
# Of classes whose instances send a task. To ask one for an attribute could make Celery's app ready
# too early.
_TASKS = ("celery.", "dramatiq.", "huey.", "django.tasks.", "django_tasks.")


def refuse_undecoratable(func: Any, decorator: str) -> None:
    """Raise TypeError, saying what to do, unless a call of ``func`` is the work itself."""
    if isinstance(func, type):
        raise TypeError(
            f"{decorator} decorates functions; for the view class {func.__name__} write "
            '@method_decorator(redis_lock(...), name="dispatch"), or use LockedViewMixin'
        )
    if isinstance(func, (staticmethod, classmethod)):
        raise TypeError(f"put {decorator} below @{type(func).__name__}")
    if any(f"{kind.__module__}.".startswith(_TASKS) for kind in type(func).__mro__):
        raise TypeError(
            f"put {decorator} below the decorator that makes the task: what it gives for a task "
            "has no delay(); for Celery there is @locked_task in django_setnx_lock.contrib.celery"
        )
    if not callable(func):
        raise TypeError(f"{decorator} decorates functions, not {func!r}")
    is_async = inspect.isasyncgenfunction(func)
    if is_async or inspect.isgeneratorfunction(func):
        raise TypeError(
            f"{dotted_name(func)} is a generator: its lock would be released before its body "
            f'runs; write "{"async " if is_async else ""}with lock(...):" inside it'
        )


def is_async(func: Any) -> bool:
    """Return whether a call of ``func`` gives something to await."""
    if iscoroutinefunction(func):
        return True
    # The dispatch() of a class-based view is no coroutine function, but gives a coroutine.
    bound = func.func if isinstance(func, partial) else func
    view = getattr(bound, "__self__", None)
    is_dispatch = getattr(bound, "__name__", "") == "dispatch"
    return is_dispatch and bool(getattr(type(view), "view_is_async", False))


def signature_of(func: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of ``func``, below decorators that pass on whatever they get."""
    inner = inspect.unwrap(func, stop=_speaks_for_itself)
    try:
        if isinstance(inner, partial):
            # method_decorator's partial is bound, but claims to wrap the unbound method.
            return _signature(partial(inner.func, *inner.args, **inner.keywords))
        return _signature(inner, follow_wrapped=isinstance(inner, MethodType))
    except ValueError:  # a builtin that does not tell
        return _signature(lambda *args, **kwargs: None)


def own_signature(func: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of ``func`` itself, whatever it says it wraps."""
    return _signature(func, follow_wrapped=False)


def _speaks_for_itself(func: Any) -> bool:
    code = getattr(func, "__code__", None)
    passes_on = code is not None and code.co_flags & _ANYTHING == _ANYTHING
    return isinstance(func, (partial, MethodType)) or not passes_on


def names_in(signature: inspect.Signature) -> list[str] | None:
    """Return the parameters that a template can name; None for all, where there is ``**kwargs``."""
    params = signature.parameters.values()
    if any(param.kind is param.VAR_KEYWORD for param in params):
        return None
    return [param.name for param in params if param.kind is not param.VAR_POSITIONAL]


def arguments_in(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name. Raises TypeError where it cannot be called so."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    found = dict(bound.arguments)
    for name, param in signature.parameters.items():
        if param.kind is param.VAR_POSITIONAL:
            del found[name]
        elif param.kind is param.VAR_KEYWORD:
            found.update(found.pop(name))
    return found


def dotted_name(func: Any) -> str:
    """Return the module and name of ``func``, or of the view class behind it."""
    # A view of a class may claim to wrap a dispatch() that it inherits.
    inner = inspect.unwrap(func, stop=lambda one: isinstance(one, partial) or view_class_of(one))
    if isinstance(inner, partial):
        inner = inner.func
    view_class = view_class_of(inner)
    if view_class:
        return f"{view_class.__module__}.{view_class.__name__}"
    if isinstance(inner, MethodType):
        owner = inner.__self__ if isinstance(inner.__self__, type) else type(inner.__self__)
        return f"{owner.__module__}.{owner.__qualname__}.{inner.__name__}"
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}.{named.__qualname__}"


def view_class_of(view: Any) -> Any:
    """Return the class that as_view() made ``view`` of, in Django or REST framework, else None."""
    return getattr(view, "view_class", None) or getattr(view, "cls", None)


def from_request_on(view: Any, args: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments of a call of ``view``, without the ``self`` before its request.

    Raises TypeError if the request is neither the first argument nor the second.
    """
    for at, value in enumerate(args[:2]):
        if http_request(value) is not None:
            return args[at:]
    raise TypeError(
        f"{dotted_name(view)} was called without a request as its first argument, and redis_lock "
        "is for views: decorate functions with @locked, which raises where a view answers"
    )


def http_request(value: Any) -> HttpRequest | None:
    """Return the HttpRequest that ``value`` is, or wraps as REST framework's Request does."""
    found = value if isinstance(value, HttpRequest) else getattr(value, "_request", None)
    return found if isinstance(found, HttpRequest) else None


def known_user(request: Any) -> str:
    """Return the request's user where it is known: a look-up would make the response vary."""
    http = http_request(request)
    if http is None:
        return ""
    user = vars(http).get("user")
    if issubclass(type(user), LazyObject):
        user = vars(http).get("_cached_user")
    get_username = getattr(user, "get_username", None)
    return str(get_username()) if get_username else ""
