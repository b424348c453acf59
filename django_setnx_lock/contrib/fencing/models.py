"""Querysets and models whose rows are written with a fence."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage
from django.db import NotSupportedError, models, router
from django.db.models.deletion import Collector

from .fences import Fence, FenceField, HasFence, fence_field, latest, newest, older

_Row = TypeVar("_Row", bound=models.Model)


class FencedQuerySet(models.QuerySet[_Row]):
    """A queryset whose rows can be claimed, and written with a fence.

    What is written without a fence leaves the stored one as it is.
    """

    def claim(self, held: HasFence | int, *args: Any, **kwargs: Any) -> _Row:
        """Store the fence of ``held`` in one row, and return the row as it is stored then.

        ``held`` is the handle of a lock or its fencing number; the rest is that of ``get()``.
        From then on the row refuses the fenced writes of all earlier holders, so what was read
        stays true for as long as nobody later claims it. The UPDATE that stores the fence comes
        before the SELECT that reads the row, in one transaction.

        Raises StaleFence if a later holder has claimed or written the row, LockLost if it is
        known already that the lock is lost, and DoesNotExist and MultipleObjectsReturned as
        ``get()``. Nothing is written then, and an atomic block around it can go on.
        """
        self._refuse_values("claim")
        rows, fence, field = self._to_write(), Fence.of(held), fence_field(self.model)
        key, pk = field.model._meta.pk.name, kwargs.get("pk")
        is_by_key = pk is not None and len(kwargs) == 1 and not args
        if not is_by_key or field.model is not self.model._meta.concrete_model:
            # Found first, as the fence may be in the table of a parent, and the filter in others.
            pk = rows.values_list(key, flat=True).get(*args, **kwargs)
        with fence.writing(rows.db, savepoint=True):
            base = field.model._base_manager.using(rows.db).filter(pk=pk)
            fence.store(base, field.name, f"{self.model._meta.label} {pk}")
            # By then it may be there no longer, or not match any more.
            row: _Row | None = latest(rows).filter(*args, **kwargs).filter(**{key: pk}).first()
            if row is None:
                name, model = self.model._meta.object_name, cast("Any", self.model)
                raise model.DoesNotExist(f"{name} matching query does not exist.")
        return row

    async def aclaim(self, held: HasFence | int, *args: Any, **kwargs: Any) -> _Row:
        """Do as :meth:`claim`, awaited."""
        return await sync_to_async(self.claim)(held, *args, **kwargs)

    def claim_all(self, held: HasFence | int) -> list[_Row]:
        """Claim all the rows, or none, and return them as they are stored then. See :meth:`claim`.

        Raises StaleFence and LockLost as that, and NotSupportedError as :meth:`update`.
        """
        self._refuse_values("claim_all")
        rows, fence, name = self._to_write(), Fence.of(held), fence_field(self.model).name
        with fence.writing(rows.db, savepoint=True):
            rows.update(**{name: fence})
            return list(latest(rows.filter(**{name: fence.number})))

    async def aclaim_all(self, held: HasFence | int) -> list[_Row]:
        """Do as :meth:`claim_all`, awaited."""
        return await sync_to_async(self.claim_all)(held)

    def update(self, **kwargs: Any) -> int:
        """Update all rows, and return how many there were.

        ``update(fence=held, ...)``, with the name of the column, updates all the rows or, if a
        later holder has claimed or written one of them, none. ``held`` is the handle of a lock or
        its number; with 0 the rows take any fence again.

        Raises StaleFence and LockLost as :meth:`FencedModel.save`, TypeError for another value of
        the fence, NotSupportedError with a fence where the filter follows a relation or the columns
        are in several tables.
        """
        field = fence_field(self.model)
        held: Any = kwargs.get(field.name)
        if field.name not in kwargs or (held == 0 and type(held) is int):
            return super().update(**kwargs)
        fence = Fence.of(held)
        self._refuse_several_tables(kwargs)
        self._for_write = True
        with fence.writing(self.db):
            # The fence last: on MySQL, values that refer to it would see the new one.
            del kwargs[field.name]
            mine: Any = older(self, field.name, fence)
            count = super(FencedQuerySet, mine).update(**kwargs, **{field.name: fence.number})
            newer = self.filter(**{f"{field.name}__gt": fence.number})
            stored = newest(newer, field.name)
            if stored is not None:
                raise fence.refused(f"the {self.model._meta.verbose_name_plural}", stored)
        self._result_cache = None
        return int(count)

    def delete(self, *, fence: HasFence | int | None = None) -> tuple[int, dict[str, int]]:
        """Delete all rows; with ``fence`` all or none, as :meth:`update`."""
        if fence is None:
            return super().delete()
        self._refuse_values("delete")
        rows, mine, name = self._to_write(), Fence.of(fence), fence_field(self.model).name
        with mine.writing(rows.db):
            rows.update(**{name: mine})
            claimed = rows.filter(**{name: mine.number}).order_by().select_related(None)
            collector = Collector(using=rows.db, origin=self)
            if found := list(claimed.select_for_update()):
                collector.collect(found)
            return collector.delete()

    delete.queryset_only = True  # type: ignore[attr-defined]  # as Django's

    async def adelete(self, *, fence: HasFence | int | None = None) -> tuple[int, dict[str, int]]:
        """Do as :meth:`delete`, awaited."""
        return await sync_to_async(self.delete)(fence=fence)

    adelete.queryset_only = True  # type: ignore[attr-defined]  # the same

    def bulk_create(
        self,
        objs: Iterable[_Row],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,
        update_conflicts: bool = False,
        update_fields: Collection[str] | None = None,
        unique_fields: Collection[str] | None = None,
    ) -> list[_Row]:
        """Make rows as ever. Raises ValueError for the fence in ``update_fields``."""
        if (name := fence_field(self.model).name) in (update_fields or ()):
            raise ValueError(
                f"bulk_create() cannot update {name!r}, which may let stale writes through"
            )
        conflicts = (ignore_conflicts, update_conflicts, update_fields, unique_fields)
        return super().bulk_create(objs, batch_size, *conflicts)

    def _to_write(self) -> FencedQuerySet[_Row]:
        rows: FencedQuerySet[_Row] = self.all()
        rows._for_write = True
        return rows

    def _refuse_values(self, method: str) -> None:
        if getattr(self, "_fields", None) is not None:
            raise TypeError(f"Cannot call {method}() after .values() or .values_list()")

    def _refuse_several_tables(self, values: Iterable[str]) -> None:
        """Raise NotSupportedError where Django finds the rows first, and writes them afterwards."""
        own = self.model._meta.concrete_model
        fields = map(self.model._meta.get_field, values)
        tables = [alias for alias, count in self.query.alias_refcount.items() if count]
        if len(tables) > 1 or any(field.model is not own for field in fields):
            raise NotSupportedError(
                "with a fence, update(), delete() and claim_all() write one table, and their "
                "filter follows no relation: write it as filter(pk__in=...) of the rows that were "
                "found, or save(fence=...) each row"
            )


for _method in ("claim", "aclaim", "claim_all", "aclaim_all"):
    # For templates, as Django's methods that write have it.
    getattr(FencedQuerySet, _method).alters_data = True

if TYPE_CHECKING:

    class FencedManager(models.Manager[_Row]):
        """The manager of :class:`FencedQuerySet`."""

        def claim(self, held: HasFence | int, *args: Any, **kwargs: Any) -> _Row: ...
        async def aclaim(self, held: HasFence | int, *args: Any, **kwargs: Any) -> _Row: ...
        def claim_all(self, held: HasFence | int) -> list[_Row]: ...
        async def aclaim_all(self, held: HasFence | int) -> list[_Row]: ...
else:

    class FencedManager(models.Manager.from_queryset(FencedQuerySet)):
        """The manager of :class:`FencedQuerySet`."""


class FencedModel(models.Model):
    """A model that has a :class:`~.fields.FenceField`, with any name.

    Without ``fence``, :meth:`save` and :meth:`delete` do what they always do, and leave the
    stored fence as it is.
    """

    # The fence of the save() that is under way.
    _saving_with: Fence | None = None

    objects: ClassVar[FencedManager[Any]] = FencedManager()

    class Meta:
        abstract = True

    def save(
        self,
        *args: Any,
        fence: HasFence | int | None = None,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Save, with ``fence`` only if the row has no larger one.

        ``fence`` is the handle of a lock or its number; it is stored in the same statement. The
        default None saves as ever. Raises StaleFence, and then nothing is written: an atomic
        block that this is called in is rolled back, as after an error of the database. A row
        that was loaded and is there no longer is not made again, but refused likewise. Raises
        LockLost, with the same effect, when it is known already that the lock of a handle is lost.
        """
        name = fence_field(type(self)).name
        if update_fields is not None and name in (update_fields := frozenset(update_fields)):
            raise ValueError(f"{name!r} cannot be in update_fields: save(fence=...) sets it")
        mine = None if fence is None else Fence.of(fence)
        using = using or router.db_for_write(type(self), instance=self)
        outer, self._saving_with = self._saving_with, mine
        try:
            # Rows of parents, and what signals write, belong to it and end with it.
            with nullcontext() if mine is None else mine.writing(using):
                super().save(*args, using=using, update_fields=update_fields, **kwargs)
        finally:
            self._saving_with = outer

    async def asave(self, *args: Any, fence: HasFence | int | None = None, **kwargs: Any) -> None:
        """Do as :meth:`save`, awaited."""
        await sync_to_async(self.save)(*args, fence=fence, **kwargs)

    def delete(
        self,
        using: str | None = None,
        keep_parents: bool = False,
        *,
        fence: HasFence | int | None = None,
    ) -> tuple[int, dict[str, int]]:
        """Delete, with ``fence`` only if the row has no larger one.

        The fence is stored first, so that nobody can come in between, and the row then deleted
        in the same transaction. Raises StaleFence and LockLost, as :meth:`save`.
        """
        if fence is None:
            return super().delete(using, keep_parents)
        using = using or router.db_for_write(type(self), instance=self)
        field, mine = fence_field(type(self)), Fence.of(fence)
        with mine.writing(using):
            pk = self._get_pk_val(field.model._meta)
            row = field.model._base_manager.using(using).filter(pk=pk)
            mine.store(row, field.name, f"{self._meta.label} {self.pk}")
            return super().delete(using, keep_parents)

    async def adelete(
        self, *args: Any, fence: HasFence | int | None = None, **kwargs: Any
    ) -> tuple[int, dict[str, int]]:
        """Do as :meth:`delete`, awaited."""
        return await sync_to_async(self.delete)(*args, fence=fence, **kwargs)

    def _do_update(  # type: ignore[override]  # takes what newer Djangos add
        self, base_qs: Any, using: str, pk_val: Any, values: Iterable[Any], *rest: Any
    ) -> Any:
        """Django's hook for the UPDATE of one table."""
        field, fence = fence_field(type(self)), self._saving_with
        hook: Any = super()._do_update
        if field.model is not base_qs.model:
            return hook(base_qs, using, pk_val, values, *rest)
        # The loaded row may be older than the stored one.
        values = [value for value in values if value[0] is not field]
        if fence is None:
            return hook(base_qs, using, pk_val, values, *rest)
        values.append((field, None, fence.number))
        mine = older(base_qs, field.name, fence)
        # Forced, because select_on_save would look at the row in a statement of its own.
        update_fields, _, *more = rest
        if updated := hook(mine, using, pk_val, values, update_fields, True, *more):
            setattr(self, field.attname, fence.number)
            return updated
        stored = newest(base_qs.filter(pk=pk_val), field.name)
        # It was loaded from there, or from a replica of it.
        home = (self._state.db, router.db_for_write(type(self), instance=self))
        if stored is not None or (not self._state.adding and using in home):
            raise fence.refused(f"{self._meta.label} {self.pk}", stored)
        return updated

    def _do_insert(
        self, manager: Any, using: str, fields: Iterable[models.Field[Any, Any]], *rest: Any
    ) -> Any:
        """Django's hook for the INSERT into one table."""
        field = fence_field(type(self))
        if self._saving_with is not None and field in fields:
            setattr(self, field.attname, self._saving_with.number)
        return super()._do_insert(manager, using, fields, *rest)  # type: ignore[misc]  # is in no stubs

    @classmethod
    def check(cls, **kwargs: Any) -> list[CheckMessage]:
        """E021: there is one FenceField. W020: the default manager can write with a fence."""
        from ...checks import message

        found: list[CheckMessage] = super().check(**kwargs)
        names = [field.name for field in cls._meta.fields if isinstance(field, FenceField)]
        if len(names) != 1:
            has = f"{len(names)} FenceFields: {', '.join(names)}" if names else "no FenceField"
            text = f"The FencedModel {cls._meta.label} has {has}."
            found.append(message("E021", text, "A row has the fence of one lock.", obj=cls))
        if not hasattr(cls._default_manager, "claim"):
            text = f"The default manager of {cls._meta.label} has no claim()."
            hint = "Make it a FencedManager, or its querysets FencedQuerySets."
            found.append(message("W020", text, hint, obj=cls))
        return found
