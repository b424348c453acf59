"""Querysets whose writes go with a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import NotSupportedError, models, transaction
from django.db.models.deletion import Collector

from .fences import Fence, HasFence, newest, older
from .fields import fence_field

if TYPE_CHECKING:
    from typing_extensions import Self

_Row = TypeVar("_Row", bound=models.Model)


class FencedQuerySet(models.QuerySet[_Row]):
    """A queryset with :meth:`fenced`. Before that is called, it is one like any other."""

    _fence: Fence | None = None

    def fenced(self, held: HasFence | int) -> Self:
        """The same rows; what writes them from now on goes with the fence of ``held``.

        ``held`` is the handle of a lock or its fencing number. :meth:`update` and :meth:`delete`
        write all the rows or, if a later holder has written one of them, none, and raise
        StaleFence; an atomic block that they are called in is rolled back then, as after an
        error of the database. :meth:`create` and :meth:`get_or_create` make rows with that
        fence. The other methods that write raise NotSupportedError.
        """
        fence_field(self.model)
        rows: Self = self.all()
        rows._fence = Fence.of(held)
        return rows

    def update(self, **kwargs: Any) -> int:
        """Update all rows, and how many there were. See :meth:`fenced`."""
        if self._fence is None:
            return super().update(**kwargs)
        field = fence_field(self.model)
        if field.name in kwargs:
            raise ValueError(f"{field.name!r} cannot be updated to a value: fenced() sets it")
        self._refuse_several_tables(kwargs)
        self._for_write = True
        with transaction.atomic(self.db, savepoint=False):
            # The fence last: on MySQL, values that refer to it would see the new one.
            mine: Any = older(self, field.name, self._fence)
            values = {**kwargs, field.name: self._fence.number}
            count: int = super(FencedQuerySet, mine).update(**values)
            newer = self.filter(**{f"{field.name}__gt": self._fence.number})
            stored = newest(newer, field.name)
            if stored is not None:
                raise self._fence.refused(self._named(), stored)
        self._result_cache = None
        return count

    update.alters_data = True  # type: ignore[attr-defined]  # for templates

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete all rows, having stored the fence in them. See :meth:`fenced`."""
        if self._fence is None:
            return super().delete()
        if getattr(self, "_fields", None) is not None:
            raise TypeError("Cannot call delete() after .values() or .values_list()")
        self._for_write = True
        with transaction.atomic(self.db, savepoint=False):
            self.update()
            field = fence_field(self.model)
            claimed = self.filter(**{field.name: self._fence.number}).order_by()
            rows = list(claimed.select_related(None).select_for_update())
            if not rows:
                return 0, {}
            collector = Collector(using=self.db, origin=self)
            collector.collect(rows)
            return collector.delete()

    delete.alters_data = True  # type: ignore[attr-defined]  # for templates
    delete.queryset_only = True  # type: ignore[attr-defined]  # as Django's

    def create(self, **kwargs: Any) -> Any:
        """Make a row, with the fence."""
        if self._fence is not None:
            kwargs[fence_field(self.model).name] = self._fence.number
        return super().create(**kwargs)

    def bulk_create(self, *args: Any, **kwargs: Any) -> Any:
        """As ever; refused with a fence."""
        self._refuse("bulk_create", "create the rows one by one")
        return super().bulk_create(*args, **kwargs)

    def bulk_update(self, *args: Any, **kwargs: Any) -> Any:
        """As ever; refused with a fence."""
        self._refuse("bulk_update", "save(fence=...) the rows one by one")
        return super().bulk_update(*args, **kwargs)

    def update_or_create(self, *args: Any, **kwargs: Any) -> Any:
        """As ever; refused with a fence."""
        self._refuse("update_or_create", "get_or_create() the row, then save(fence=...) it")
        return super().update_or_create(*args, **kwargs)

    def _refuse(self, method: str, instead: str) -> None:
        if self._fence is not None:
            raise NotSupportedError(f"{method}() cannot go with a fence: {instead}")

    def _refuse_several_tables(self, values: dict[str, Any]) -> None:
        """Raise NotSupportedError unless one UPDATE of one table can both look and write.

        With several, Django finds the rows first and then writes them whatever they are by then.
        """
        own = self.model._meta.concrete_model
        fields = [fence_field(self.model), *map(self.model._meta.get_field, values)]
        if any(field.model is not own for field in fields):
            self._refuse("update() or delete() of rows in several tables", "save(fence=...) them")
        used = [alias for alias, count in self.query.alias_refcount.items() if count]
        if len(used) > 1:
            self._refuse(
                "update() or delete() with a filter that follows a relation",
                "write it as filter(pk__in=...) of the rows that were found",
            )

    def _named(self) -> str:
        return f"the {self.model._meta.verbose_name_plural}"

    def _clone(self) -> Self:
        clone: Self = super()._clone()  # type: ignore[misc]  # is in no stubs
        clone._fence = self._fence
        return clone

    def _merge_sanity_check(self, other: Any) -> None:
        """Django's hook of ``&``, ``|`` and ``^``, which keep what the left side has."""
        if getattr(other, "_fence", None) != self._fence:
            raise TypeError("querysets with different fences cannot be combined")
        super()._merge_sanity_check(other)  # type: ignore[misc]  # is in no stubs


if TYPE_CHECKING:

    class FencedManager(models.Manager[_Row]):
        """The manager of :class:`FencedQuerySet`."""

        def fenced(self, held: HasFence | int) -> FencedQuerySet[_Row]: ...
else:

    class FencedManager(models.Manager.from_queryset(FencedQuerySet)):
        """The manager of :class:`FencedQuerySet`."""
