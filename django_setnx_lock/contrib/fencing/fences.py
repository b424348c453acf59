"""The number that a write goes with, and what is raised when it is too small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from django.db import connections

from ...core.errors import StaleFence

if TYPE_CHECKING:
    from django.db.models import QuerySet

# What a BigIntegerField holds on every database.
_LARGEST = 2**63 - 1


class HasFence(Protocol):
    """A handle of a lock; what ``with lock(...) as held`` gives."""

    @property
    def key(self) -> str: ...
    @property
    def fence(self) -> int: ...


class Fence(NamedTuple):
    """A fencing number, and the key of the lock if that is known."""

    number: int
    key: str = ""

    @classmethod
    def of(cls, held: HasFence | int) -> Fence:
        """That of a handle, or a number as it is.

        Raises TypeError or ValueError for anything else, LockUnsupported for a lock without one.
        """
        number, key = held, ""
        if not isinstance(held, int) and hasattr(type(held), "fence"):
            number, key = held.fence, held.key
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(
                f"fence must be the handle of a lock or its number, not {type(held).__name__}: "
                "pass what `with lock(...) as held` gives, or held.fence"
            )
        if not 0 < number <= _LARGEST:
            raise ValueError(f"fence must be a number from 1 to {_LARGEST}, not {number}")
        return cls(number, key)

    def refused(self, what: str, stored: int | None) -> StaleFence:
        """The error for a write of ``what``, where ``stored`` was found; None: no row."""
        if stored is None:
            why = "it is in the database no longer, and may have been deleted by a later holder"
        else:
            why = f"a later holder has written it, with fence {stored}"
        message = f"nothing of {what} was written with fence {self.number}: {why}"
        return StaleFence(message, key=self.key, fence=self.number, stored=stored)


def older(rows: QuerySet[Any], name: str, fence: Fence) -> QuerySet[Any]:
    """Those of ``rows`` that may be written with ``fence``, which is kept in the field ``name``."""
    found: QuerySet[Any] = rows.filter(**{f"{name}__lte": fence.number})
    return found


def newest(rows: QuerySet[Any], name: str) -> int | None:
    """The largest number in the field ``name`` of ``rows``, None without rows. In a transaction."""
    # There a plain look may show an older state than the one that an UPDATE has just seen.
    if connections[rows.db].vendor == "mysql":
        rows = rows.select_for_update()
    found = rows.order_by(f"-{name}").values_list(name, flat=True).first()
    return None if found is None else int(found)
