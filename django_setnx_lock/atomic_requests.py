"""Has a locked view's transaction of ATOMIC_REQUESTS begin and end under the lock.

Django's handler opens those of all databases around a view and all its decorators, unless the view
says that it is not to. A locked view says so, and opens them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction
from django.db import connections

from .transactions import waits_for_commit

if TYPE_CHECKING:
    from .transactions import Release

# What Django's handler looks at, and non_atomic_requests adds to.
_ATTRIBUTE = "_non_atomic_requests"


class LeftToLock(set[str]):
    """All databases: the handler is to begin no transaction. Lists those that nobody is to.

    ``by``: what tells whose decorator begins them in its place.
    """

    def __init__(self, by: object, release: Release | None, exempt: Iterable[str]) -> None:
        super().__init__(exempt)
        self.by = by
        self._release = release

    def __contains__(self, alias: object) -> bool:
        return waits_for_commit(self._release) or self.exempts(alias)

    def exempts(self, alias: object) -> bool:
        """Whether the view is to run without a transaction there."""
        return super().__contains__(alias)


def leave_to_lock(view: Callable[..., Any], by: object, release: Release | None) -> None:
    """Have the transactions of ``view`` begun under the lock of ``by``.

    Of several locks that a view is decorated with it is the innermost that does. For async views
    the handler is left to refuse.
    """
    exempt = getattr(view, _ATTRIBUTE, ())
    if release == "exit" or iscoroutinefunction(view):
        return
    if not isinstance(exempt, LeftToLock):
        setattr(view, _ATTRIBUTE, LeftToLock(by, release, exempt))


def refuse_async(request: Any, view: Callable[..., Any], by: object) -> None:
    """Raise RuntimeError for an async ``view``, as the handler does where it sees that it is."""
    if request is not None and databases(request, view, by):
        raise RuntimeError("You cannot use ATOMIC_REQUESTS with async views.")


def databases(request: Any, view: Callable[..., Any], by: object) -> list[str]:
    """Those that a transaction is to be begun of for ``request`` around ``view``, under the lock.

    None where the handler has not left it to the lock of ``by``: ``view`` is called by another
    one, say, or a decorator around it has hidden that it is locked.
    """
    # What the handler went by; method_decorator makes another wrapper for each call.
    callback = getattr(getattr(request, "resolver_match", None), "func", None)
    left = getattr(callback, _ATTRIBUTE, None)
    if not isinstance(left, LeftToLock) or left.by is not by:
        return []
    own = getattr(view, _ATTRIBUTE, left)
    exempt = {*left, *own}
    return [
        alias
        for alias, settings in connections.settings.items()
        if settings["ATOMIC_REQUESTS"] and alias not in exempt and alias in left
    ]
