"""What a callable takes, and what one call of it was given."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any

from asgiref.sync import iscoroutinefunction

if sys.version_info >= (3, 14):
    from annotationlib import Format

    # Annotations may name what is imported for type checkers only.
    _signature = partial(inspect.signature, annotation_format=Format.STRING)
else:
    _signature = inspect.signature

_ANYTHING = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def refuse_undecoratable(func: Any, decorator: str) -> None:
    """Raise TypeError, saying what to do, unless a call of ``func`` is the work itself."""
    if isinstance(func, type):
        raise TypeError(
            f"{decorator} decorates functions; for the class {func.__name__} write "
            f'@method_decorator({decorator}(...), name="dispatch"), or name="post"'
        )
    if isinstance(func, (staticmethod, classmethod)):
        raise TypeError(f"put {decorator} below @{type(func).__name__}")
    if not callable(func):
        raise TypeError(f"{decorator} decorates functions, not {func!r}")
    is_async = inspect.isasyncgenfunction(func)
    if is_async or inspect.isgeneratorfunction(func):
        raise TypeError(
            f"{dotted_name(func)} is a generator: its lock would be let go before its body "
            f'runs; write "{"async " if is_async else ""}with lock(...):" inside it'
        )


def is_django_task(func: Any) -> bool:
    """Whether ``func`` is what Django's ``@task`` makes of a function, or the backport's."""
    kinds = {f"{one.__module__.partition('.')[0]}.{one.__name__}" for one in type(func).__mro__}
    return not kinds.isdisjoint(("django.Task", "django_tasks.Task"))


def is_async(func: Any) -> bool:
    """Whether what a call of ``func`` gives is to be awaited."""
    if iscoroutinefunction(func):
        return True
    # The dispatch() of a class-based view is no coroutine function, but gives a coroutine.
    bound = func.func if isinstance(func, partial) else func
    view = getattr(bound, "__self__", None)
    return getattr(bound, "__name__", "") == "dispatch" and bool(
        getattr(type(view), "view_is_async", False)
    )


def signature_of(func: Callable[..., Any]) -> inspect.Signature:
    """What ``func`` can be called with.

    Decorators that pass on whatever they get are looked through, others are taken at their word.
    """
    inner = inspect.unwrap(func, stop=_speaks_for_itself)
    try:
        if isinstance(inner, partial):
            # method_decorator's partial is bound, but claims to wrap the unbound method.
            return _signature(partial(inner.func, *inner.args, **inner.keywords))
        return _signature(inner, follow_wrapped=isinstance(inner, MethodType))
    except ValueError:  # a builtin that does not tell
        return _signature(lambda *args, **kwargs: None)


def own_signature(func: Callable[..., Any]) -> inspect.Signature:
    """What ``func`` itself can be called with, whatever it says it wraps."""
    return _signature(func, follow_wrapped=False)


def _speaks_for_itself(func: Any) -> bool:
    code = getattr(func, "__code__", None)
    passes_on = code is not None and code.co_flags & _ANYTHING == _ANYTHING
    return isinstance(func, (partial, MethodType)) or not passes_on


def names_in(signature: inspect.Signature) -> list[str]:
    """The parameters that a template can name."""
    return [name for name, param in signature.parameters.items() if param.kind not in _VARIADIC]


def takes_any_name(signature: inspect.Signature) -> bool:
    """Whether there is a ``**kwargs``."""
    return any(param.kind is param.VAR_KEYWORD for param in signature.parameters.values())


def arguments_in(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Each argument of a call by its name, defaults and ``**kwargs`` included.

    Raises TypeError when the callable cannot be called so.
    """
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
    """The module and name of ``func``, or of the view class behind it."""
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
    """The class that as_view() made ``view`` of, in Django or REST framework, else None."""
    return getattr(view, "view_class", None) or getattr(view, "cls", None)
