"""A fencing number, the column that keeps the largest of a row, and ``guard()`` without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models, transaction
from django.utils.asyncio import async_unsafe

from ...core.errors import StaleFence

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from ...core.locks.layered import LockHandle

    _BigIntegerField = models.BigIntegerField[int, int]
else:
    _BigIntegerField = models.BigIntegerField

# The largest BigIntegerField on every database.
_LARGEST = 2**63 - 1
# A transaction or savepoint writes nothing, and a rollback has to work once the lock is lost.
_WITHOUT_CHECK = ("SELECT", "BEGIN", "SAVEPOINT", "RELEASE", "ROLLBACK")


class HasFence(Protocol):
    """A handle of a lock; what ``with lock(...) as held`` gives."""

    @property
    def key(self) -> str: ...
    @property
    def fence(self) -> int: ...


@dataclass(frozen=True)
class Fence:
    """A fencing number, and the key and the handle of the lock if they are known."""

    number: int
    key: str = ""
    held: LockHandle | None = None

    @classmethod
    def of(cls, held: HasFence | int | Fence) -> Fence:
        """Return the fence of a handle or number. Raises TypeError, ValueError, LockUnsupported."""
        if isinstance(held, Fence):
            return held
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
        handle: Any = held if hasattr(held, "refuse_if_over") else None
        return cls(number, key, handle)

    @contextmanager
    def writing(self, using: str, *, savepoint: bool = False) -> Iterator[None]:
        """Open a transaction for a fenced write. Raises LockLost if that is known already."""
        with transaction.atomic(using, savepoint=savepoint):
            # A forked child counts no lease: there a handle is as good as its number.
            if self.held is not None and self.held.lost and self.held.is_here:
                self.held.refuse_if_over("write under")
            yield

    def store(self, row: QuerySet[Any], name: str, what: str) -> None:
        """Store the fence in one row, if it is there. Raises StaleFence if it has a larger one."""
        if not older(row, name, self).update(**{name: self.number}):
            stored = newest(row, name)
            if stored is not None:
                raise self.refused(what, stored)

    def refused(self, what: str, stored: int | None) -> StaleFence:
        """Return the error for a write of ``what``, where ``stored`` was found; None: no row."""
        if stored is None:
            why = "it is in the database no longer, and may have been deleted by a later holder"
        else:
            why = f"a later holder has claimed or written it, with fence {stored}"
        message = f"nothing of {what} was written with fence {self.number}: {why}"
        return StaleFence(message, key=self.key, fence=self.number, stored=stored)


def older(rows: QuerySet[Any], name: str, fence: Fence) -> QuerySet[Any]:
    """Return those of ``rows`` whose field ``name`` has no larger number than ``fence``."""
    found: QuerySet[Any] = rows.filter(**{f"{name}__lte": fence.number})
    return found


def latest(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return ``rows`` as an UPDATE of the same transaction has just seen them."""
    # In a transaction of MySQL a plain look may show an older state.
    return rows.select_for_update() if connections[rows.db].vendor == "mysql" else rows


def newest(rows: QuerySet[Any], name: str) -> int | None:
    """Return the largest number in the field ``name`` of ``rows``, or None without rows.

    Call it in a transaction."""
    found = latest(rows).order_by(f"-{name}").values_list(name, flat=True).first()
    return None if found is None else int(found)


class FenceField(_BigIntegerField):
    """The fencing number of the last holder that wrote the row; 0 before the first.

    For a :class:`~.models.FencedModel`. It is set by fenced writes, and no form shows it. Raises
    TypeError for ``null=True``: a fence that is unknown would let no write through.
    """

    # Where migrations import it from.
    __module__ = "django_setnx_lock.contrib.fencing"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("null"):
            raise TypeError("a FenceField cannot be null: rows never written with a fence have 0")
        kwargs.setdefault("default", 0)
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """E020: the model writes it as it has to be written. Else an old number would come back."""
        from ...checks import message

        found: list[CheckMessage] = super().check(**kwargs)
        if not hasattr(self.model, "_saving_with"):
            text = f"{self.model._meta.label} has a FenceField, and is no FencedModel."
            hint = (
                "Its save() would put back an older fence. Make it a subclass of "
                "django_setnx_lock.contrib.fencing.FencedModel."
            )
            found.append(message("E020", text, hint, obj=self))
        return found


def fence_field(model: type[models.Model]) -> FenceField:
    """Return the FenceField of ``model``. Raises FieldDoesNotExist when it has none."""
    for column in model._meta.concrete_fields:
        if isinstance(column, FenceField):
            return column
    raise FieldDoesNotExist(
        f"{model._meta.label} has no FenceField: add `fence = FenceField()` to it, and a migration"
    )


class Checked(Protocol):
    """A handle of a lock, or of several."""

    def check(self) -> None: ...


@async_unsafe("guard() works in the thread that it is used in: use it where the ORM is called")
@contextmanager
def guard(held: Checked) -> Iterator[None]:
    """Call ``held.check()`` before each statement of this thread that is no SELECT.

    That is on all databases; BEGIN, savepoints and rollbacks pass, too. Once the lock is lost, the
    statement is not sent and LockLost is raised, or LockUnavailable where Redis cannot say. Each
    check is one round trip to Redis. A SELECT that writes, as by a function or a second
    statement behind it, is not seen, nor is what goes past ``execute()`` of Django's cursors. Time
    passes between the answer and the write: only a fence refuses every late write.

    Raises SynchronousOnlyOperation in a running event loop.
    """

    def checking(
        execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if not str(sql).lstrip().upper().startswith(_WITHOUT_CHECK):
            held.check()
        return execute(sql, params, many, context)

    with ExitStack() as wrapped:
        for connection in connections.all():
            wrapped.enter_context(connection.execute_wrapper(checking))
        yield
