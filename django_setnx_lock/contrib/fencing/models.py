"""Querysets and models whose rows are written with a fence."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage
from django.db import NotSupportedError, models, router
from django.db.models.deletion import Collector

from .fences import Fence, FenceField, HasFence, fence_field, latest, newest, older

if TYPE_CHECKING:
    from typing_extensions import Self

_Row = TypeVar("_Row", bound=models.Model)


class FencedQuerySet(models.QuerySet[_Row]):
    """A queryset whose rows can be claimed, and written with a fence.

    Without a fence it is one like any other, but sets no stored fence: see :meth:`update`.
    """

    _fence: Fence | None = None

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
        rows, fence = self._claimable(held)
        field = fence_field(self.model)
        key, pk = field.model._meta.pk.name, kwargs.get("pk")
        if (
            args
            or len(kwargs) != 1
            or pk is None
            or field.model is not self.model._meta.concrete_model
        ):
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
        rows, fence = self._claimable(held)
        with fence.writing(rows.db, savepoint=True):
            rows.update()
            return list(latest(rows.filter(**{fence_field(self.model).name: fence.number})))

    async def aclaim_all(self, held: HasFence | int) -> list[_Row]:
        """Do as :meth:`claim_all`, awaited."""
        return await sync_to_async(self.claim_all)(held)

    def _claimable(self, held: HasFence | int) -> tuple[Self, Fence]:
        self._refuse_values("claim")
        rows, fence = self.fenced(held), Fence.of(held)
        rows._for_write = True
        return rows, fence

    def fenced(self, held: HasFence | int) -> Self:
        """Return the same rows; what writes them from now on goes with the fence of ``held``.

        ``held`` is the handle of a lock or its fencing number. :meth:`update`, :meth:`delete`
        and :meth:`bulk_update` write all the rows or, if a later holder has claimed or written
        one of them, none, and raise StaleFence and LockLost as :meth:`FencedModel.save` does.
        :meth:`create`, :meth:`get_or_create` and :meth:`bulk_create` make rows with that fence.
        :meth:`update_or_create` raises NotSupportedError.
        """
        fence_field(self.model)
        rows: Self = self.all()
        rows._fence = Fence.of(held)
        return rows

    def update(self, **kwargs: Any) -> int:
        """Update all rows, and how many there were. See :meth:`fenced`.

        Raises ValueError for a value of the fence itself, which would let stale writes through.
        Without :meth:`fenced`, 0 may be given: the rows take any fence then.
        """
        if self._fence is None:
            zero = {name for name, value in kwargs.items() if isinstance(value, int) and not value}
            self._refuse_fence("update", kwargs.keys() - zero)
            return super().update(**kwargs)
        self._refuse_fence("update", kwargs)
        field = fence_field(self.model)
        self._refuse_several_tables(kwargs)
        self._for_write = True
        with self._fence.writing(self.db):
            # The fence last: on MySQL, values that refer to it would see the new one.
            mine: Any = older(self, field.name, self._fence)
            values = {**kwargs, field.name: self._fence.number}
            count: int = super(FencedQuerySet, mine).update(**values)
            newer = self.filter(**{f"{field.name}__gt": self._fence.number})
            stored = newest(newer, field.name)
            if stored is not None:
                what = f"the {self.model._meta.verbose_name_plural}"
                raise self._fence.refused(what, stored)
        self._result_cache = None
        return count

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete all rows, having stored the fence in them. See :meth:`fenced`."""
        if self._fence is None:
            return super().delete()
        self._refuse_values("delete")
        self._for_write = True
        with self._fence.writing(self.db):
            self.update()
            field = fence_field(self.model)
            claimed = self.filter(**{field.name: self._fence.number}).order_by()
            rows = list(claimed.select_related(None).select_for_update())
            if not rows:
                return 0, {}
            collector = Collector(using=self.db, origin=self)
            collector.collect(rows)
            return collector.delete()

    delete.queryset_only = True  # type: ignore[attr-defined]  # as Django's

    def create(self, **kwargs: Any) -> Any:
        """Make a row, with the fence."""
        if self._fence is None:
            return super().create(**kwargs)
        self._for_write = True
        with self._fence.writing(self.db):
            kwargs[fence_field(self.model).name] = self._fence.number
            return super().create(**kwargs)

    def bulk_create(
        self,
        objs: Iterable[_Row],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,
        update_conflicts: bool = False,
        update_fields: Collection[str] | None = None,
        unique_fields: Collection[str] | None = None,
    ) -> list[_Row]:
        """Make rows, with the fence. With it, rows that are there cannot be updated.

        Raises ValueError for the fence itself in ``update_fields``.
        """
        self._refuse_fence("bulk_create", update_fields or ())
        conflicts = (ignore_conflicts, update_conflicts, update_fields, unique_fields)
        if self._fence is None:
            return super().bulk_create(objs, batch_size, *conflicts)
        if update_conflicts:
            self._refuse("bulk_create(update_conflicts=True)", "bulk_update() the rows")
        rows = list(objs)
        self._for_write = True
        with self._fence.writing(self.db):
            for row in rows:
                setattr(row, fence_field(self.model).name, self._fence.number)
            return super().bulk_create(rows, batch_size, *conflicts)

    def bulk_update(
        self, objs: Iterable[_Row], fields: Iterable[str], batch_size: int | None = None
    ) -> int:
        """Update the ``fields`` of the rows, with the fence all or none. See :meth:`fenced`.

        Raises ValueError for the fence itself in ``fields``.
        """
        fields = list(fields)
        self._refuse_fence("bulk_update", fields)
        # It is made of update(), in one transaction.
        return super().bulk_update(objs, fields, batch_size)

    def update_or_create(self, *args: Any, **kwargs: Any) -> Any:
        """Update or make a row as ever. Refused with a fence."""
        self._refuse("update_or_create()", "get_or_create() the row, then save(fence=...) it")
        return super().update_or_create(*args, **kwargs)

    def _refuse(self, what: str, instead: str) -> None:
        if self._fence is not None:
            raise NotSupportedError(f"{what} cannot go with a fence: {instead}")

    def _refuse_fence(self, method: str, names: Iterable[str]) -> None:
        """Raise ValueError if ``names`` has that of the fence, which fenced writes alone set."""
        fields = self.model._meta.concrete_fields
        fences = {field.name for field in fields if isinstance(field, FenceField)}
        for name in fences.intersection(names):
            raise ValueError(
                f"{method}() cannot set {name!r}, which may let stale writes through: "
                f"fenced(held).{method}(...) does, and without a fence update({name}=0) "
                "lets any holder write again"
            )

    def _refuse_values(self, method: str) -> None:
        if getattr(self, "_fields", None) is not None:
            raise TypeError(f"Cannot call {method}() after .values() or .values_list()")

    def _refuse_several_tables(self, values: dict[str, Any]) -> None:
        """Raise NotSupportedError where Django finds the rows first, and writes them afterwards."""
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

    def _clone(self) -> Self:
        clone: Self = super()._clone()  # type: ignore[misc]  # is in no stubs
        clone._fence = self._fence
        return clone

    def _merge_sanity_check(self, other: Any) -> None:
        """Django's hook of ``&``, ``|`` and ``^``, which keep what the left side has."""
        if getattr(other, "_fence", None) != self._fence:
            raise TypeError("querysets with different fences cannot be combined")
        super()._merge_sanity_check(other)  # type: ignore[misc]  # is in no stubs


for _method in ("claim", "aclaim", "claim_all", "aclaim_all"):
    # For templates, as Django's methods that write have it.
    getattr(FencedQuerySet, _method).alters_data = True

if TYPE_CHECKING:

    class FencedManager(models.Manager[_Row]):
        """The manager of :class:`FencedQuerySet`."""

        def fenced(self, held: HasFence | int) -> FencedQuerySet[_Row]: ...
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
        field = fence_field(type(self))
        if update_fields is not None:
            update_fields = frozenset(update_fields)
            if update_fields & {field.name, field.attname}:
                raise ValueError(
                    f"{field.name!r} cannot be in update_fields: save(fence=...) sets it"
                )
        outer, before = self._saving_with, self.__dict__.get(field.attname)
        try:
            self._saving_with = mine = None if fence is None else Fence.of(fence)
            # Rows of parents, and what signals write, belong to it and end with it.
            with ExitStack() as around:
                if mine is not None:
                    using = using or router.db_for_write(type(self), instance=self)
                    around.enter_context(mine.writing(using))
                super().save(*args, using=using, update_fields=update_fields, **kwargs)
        except BaseException:
            if before is not None:
                setattr(self, field.attname, before)
            raise
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
            mine.store(row, field.name, _named(self))
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
        updated = hook(mine, using, pk_val, values, update_fields, True, *more)
        if updated:
            setattr(self, field.attname, fence.number)
            return updated
        stored = newest(base_qs.filter(pk=pk_val), field.name)
        if stored is not None or (not self._state.adding and self._belongs_to(using)):
            raise fence.refused(_named(self), stored)
        return updated

    def _belongs_to(self, using: str) -> bool:
        """Return whether the row was loaded from the database ``using``, or a replica of it."""
        written_to = router.db_for_write(type(self), instance=self)
        return using in (self._state.db, written_to)

    def _do_insert(
        self, manager: Any, using: str, fields: Iterable[models.Field[Any, Any]], *rest: Any
    ) -> Any:
        """Django's hook for the INSERT into one table."""
        field = fence_field(type(self))
        if self._saving_with is not None and field in fields:
            setattr(self, field.attname, self._saving_with.number)
        return super()._do_insert(manager, using, fields, *rest)  # type: ignore[misc]  # as above

    @classmethod
    def check(cls, **kwargs: Any) -> list[CheckMessage]:
        """E021: there is one FenceField. W020: the default manager can write with a fence."""
        from ...checks import message

        found: list[CheckMessage] = super().check(**kwargs)
        names = [one.name for one in cls._meta.concrete_fields if isinstance(one, FenceField)]
        if len(names) != 1:
            has = f"{len(names)} FenceFields: {', '.join(names)}" if names else "no FenceField"
            text = f"The FencedModel {cls._meta.label} has {has}."
            found.append(message("E021", text, "A row has the fence of one lock.", obj=cls))
        if not hasattr(cls._default_manager, "fenced"):
            text = f"The default manager of {cls._meta.label} has no fenced()."
            hint = "Make it a FencedManager, or its querysets FencedQuerySets."
            found.append(message("W020", text, hint, obj=cls))
        return found


def _named(row: models.Model) -> str:
    return f"{row._meta.label} {row.pk}"
