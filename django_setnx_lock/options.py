"""The options of a lock: one list, which every door passes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict

from .conf import are_aliases
from .core.options import UNSET, Unset, checked_callback, checked_replicas, options_of

if TYPE_CHECKING:
    from typing_extensions import Self

# The options that a lock without Django has as well, and that no setting decides here.
_OF_CORE = ("timeout", "blocking_timeout", "renew", "max_hold", "min_hold", "reentrant")


class Options(TypedDict, total=False):
    """What ``**options`` may be, for type checkers: fields of :class:`LockOptions`."""

    timeout: float | None
    blocking_timeout: float | Unset | None
    renew: bool | None
    max_hold: float | None
    min_hold: float | None
    reentrant: bool | None
    until_commit: bool | None
    replicas: int | None
    using: str | Sequence[str] | None
    label: str
    note: str


class DoorOptions(Options, total=False):
    """The same where a lock may be shared, and of one key or several."""

    on_lost: Callable[[Any], object] | None
    shared: bool
    limit: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LockOptions:
    """How a lock is taken and held. An option that is not given is as the settings say.

    ``timeout``: the lease in seconds. ``blocking_timeout``: for how many seconds a caller waits for
    the lock (None: without limit). ``renew``: whether the lease is renewed while the lock is held.
    ``max_hold``: for how many seconds the lock is held at most (None: without limit). ``min_hold``:
    for how many seconds from the grant on nobody else gets the lock, however soon it is released
    (None: none). ``reentrant``: whether the thread or asyncio task that holds the lock gets it
    again. ``until_commit``: whether a release inside a transaction waits until that has ended;
    :doc:`transactions`. ``replicas``: how many replicas have to acknowledge the lock before it
    counts as taken. ``using``: the cache alias; several of them make a
    :class:`Redlock`. ``label`` and ``note``: shown to operators beside host and
    process (""). ``on_lost``: called once with the handle when the lock was found to be lost
    (None). ``shared`` and ``limit``: whether others may hold it too, as by :func:`rwlock` and
    :func:`semaphore` (False and None: nobody).

    Raises TypeError for an option that does not exist or is of a wrong type, ValueError for a time
    or a number that cannot be, LockUnsupported for options that exclude one another.
    """

    timeout: float | None = None
    blocking_timeout: float | Unset | None = UNSET
    renew: bool | None = None
    max_hold: float | None = None
    min_hold: float | None = None
    reentrant: bool | None = None
    until_commit: bool | None = None
    replicas: int | None = None
    using: str | Sequence[str] | None = None
    label: str = ""
    note: str = ""
    on_lost: Callable[[Any], object] | None = None
    shared: bool = False
    limit: int | None = None

    def __new__(cls, **given: Any) -> Self:
        for name in given:
            if name not in cls.__dataclass_fields__:
                close = get_close_matches(name, cls.__dataclass_fields__, n=1)
                raise TypeError(
                    f"a lock has no option {name!r}"
                    + (f"; did you mean {close[0]!r}?" if close else ".")
                    + f" The options are: {', '.join(cls.__dataclass_fields__)}"
                )
        return object.__new__(cls)

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in _OF_CORE}
        given = {name: value for name, value in values.items() if value not in (None, UNSET)}
        checked_callback(self.on_lost)
        options_of(**given, shared=self.shared, limit=self.limit)
        checked_replicas(self.replicas)
        if not isinstance(self.until_commit, (bool, type(None))):
            raise TypeError(f"until_commit is True, False or None, not {self.until_commit!r}")
        if self.using and not are_aliases(self.using):
            raise TypeError(f"using is a cache alias or several of them, not {self.using!r}")
        for name in ("label", "note"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is a str, not {getattr(self, name)!r}")


# Most locks of a program have the same options. Typed: True is not 1 here.
_made = lru_cache(maxsize=256, typed=True)(LockOptions)


def lock_options(given: Mapping[str, Any]) -> LockOptions:
    """Return the :class:`LockOptions` of these values. Raises as that."""
    # A callback is not to be kept alive.
    if given.get("on_lost") is None:
        try:
            return _made(**given)
        except TypeError:
            # Without a hash, as a list of aliases has none. (suppress() would take longer.)
            pass
    return LockOptions(**given)
