"""Models whose rows are written with a fence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.db import models, router, transaction

from .fences import Fence, HasFence, newest, older
from .fields import FenceField, fence_field
from .querysets import FencedManager


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
        """Save, with ``fence`` only if nobody has written the row with a larger one.

        ``fence`` is the handle of a lock or its number; it is stored in the same statement. The
        default None saves as ever. Raises StaleFence, and then nothing is written: an atomic
        block that this is called in is rolled back, as after an error of the database. A row
        that was loaded and is there no longer is not made again, but refused likewise.
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
            if fence is None:
                self._saving_with = None
                super().save(*args, using=using, update_fields=update_fields, **kwargs)
                return
            self._saving_with = Fence.of(fence)
            # What belongs to it, as the rows of parents and what signals write, ends with it.
            using = using or router.db_for_write(type(self), instance=self)
            with transaction.atomic(using, savepoint=False):
                super().save(*args, using=using, update_fields=update_fields, **kwargs)
        except BaseException:
            if before is not None:
                setattr(self, field.attname, before)
            raise
        finally:
            self._saving_with = outer

    save.alters_data = True  # type: ignore[attr-defined]  # for templates

    async def asave(self, *args: Any, fence: HasFence | int | None = None, **kwargs: Any) -> None:
        """As :meth:`save`."""
        await sync_to_async(self.save)(*args, fence=fence, **kwargs)

    asave.alters_data = True  # type: ignore[attr-defined]  # for templates

    def delete(
        self,
        using: str | None = None,
        keep_parents: bool = False,
        *,
        fence: HasFence | int | None = None,
    ) -> tuple[int, dict[str, int]]:
        """Delete, with ``fence`` only if nobody has written the row with a larger one.

        The fence is stored first, so that nobody can come in between, and the row then deleted
        in the same transaction. Raises StaleFence, as :meth:`save`.
        """
        if fence is None:
            return super().delete(using, keep_parents)
        using = using or router.db_for_write(type(self), instance=self)
        with transaction.atomic(using, savepoint=False):
            field, mine = fence_field(type(self)), Fence.of(fence)
            pk = self._get_pk_val(field.model._meta)
            row = field.model._base_manager.using(using).filter(pk=pk)
            if not older(row, field.name, mine).update(**{field.name: mine.number}):
                stored = newest(row, field.name)
                if stored is not None:
                    raise mine.refused(_named(self), stored)
            return super().delete(using, keep_parents)

    delete.alters_data = True  # type: ignore[attr-defined]  # for templates

    async def adelete(
        self,
        using: str | None = None,
        keep_parents: bool = False,
        *,
        fence: HasFence | int | None = None,
    ) -> tuple[int, dict[str, int]]:
        """As :meth:`delete`."""
        return await sync_to_async(self.delete)(using, keep_parents, fence=fence)

    adelete.alters_data = True  # type: ignore[attr-defined]  # for templates

    def _do_update(  # type: ignore[override]  # takes what newer Djangos add
        self, base_qs: Any, using: str, pk_val: Any, values: Iterable[Any], *rest: Any
    ) -> Any:
        """Django's hook for the UPDATE of one table."""
        field, fence = fence_field(type(self)), self._saving_with
        hook: Any = super()._do_update
        if field.model is not base_qs.model:
            return hook(base_qs, using, pk_val, values, *rest)
        # What was loaded may be older than what is stored by now.
        values = [value for value in values if value[0] is not field]
        if fence is None:
            return hook(base_qs, using, pk_val, values, *rest)
        values.append((field, None, fence.number))
        mine = older(base_qs, field.name, fence)
        # As forced, for select_on_save would look at the row in statements of their own.
        update_fields, _, *more = rest
        updated = hook(mine, using, pk_val, values, update_fields, True, *more)
        if updated:
            setattr(self, field.attname, fence.number)
            return updated
        stored = newest(base_qs.filter(pk=pk_val), field.name)
        if stored is not None or (not self._state.adding and self._state.db == using):
            raise fence.refused(_named(self), stored)
        return updated

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
        return [*super().check(**kwargs), *_check_field(cls), *_check_manager(cls)]


def _check_field(model: type[models.Model]) -> list[CheckMessage]:
    names = [one.name for one in model._meta.concrete_fields if isinstance(one, FenceField)]
    if len(names) == 1:
        return []
    has = f"{len(names)} FenceFields: {', '.join(names)}" if names else "no FenceField"
    return [
        Error(
            f"The FencedModel {model._meta.label} has {has}.",
            hint="A row has the fence of one lock. See docs/checks.md#e021.",
            obj=model,
            id="django_setnx_lock.E021",
        )
    ]


def _check_manager(model: type[models.Model]) -> list[CheckMessage]:
    if hasattr(model._default_manager, "fenced"):
        return []
    return [
        CheckWarning(
            f"The default manager of {model._meta.label} has no fenced().",
            hint="Make it a FencedManager, or its querysets FencedQuerySets. "
            "See docs/checks.md#w020.",
            obj=model,
            id="django_setnx_lock.W020",
        )
    ]


def _named(row: models.Model) -> str:
    return f"{row._meta.label} {row.pk}"
