"""The list of a ModelAdmin: who edits, and rows that are saved or worked on under their locks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import ImproperlyConfigured
from django.db import models, router, transaction
from django.http import HttpResponseRedirect
from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import LockBusy, LockError, LockUnavailable
from ..core.protocol.keys import name_for
from ..interventions import RELEASE
from ..key_template import KeyTemplate, MissingValue
from ..locks import inspector, key_prefix, make_one
from ..options import LockOptions
from .actions import key_of, locked_action, rows_by_key, tell_skipped
from .confirming import Confirmation, Target, holders_of

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite, ModelAdmin
    from django.contrib.admin.views.main import ChangeList
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.template.response import TemplateResponse
    from typing_extensions import Unpack

    from ..core import Inspector
    from ..core.locks.layered import LockHandle, RedisLock
    from ..options import Options

    _Base = ModelAdmin[Any]
else:
    _Base = object

ACTION = "release_locks_of_selected"

# The attribute of a request with the locks of the rows that it saves in a list.
_ROWS = "_setnx_lock_rows"


class LockedList(_Base):
    """The part of :class:`.LockedAdminMixin` that is about the list and its actions.

    The action that releases locks is there for those with the permission ``release_lock``. It asks
    before it does anything, and takes a lock only from the holders that were shown.
    """

    lock_editing: ClassVar[bool | Literal["warn"]] = True
    lock_key: str
    lock_using: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        bases = cls.__mro__
        if admin.ModelAdmin in bases[: bases.index(LockedList)]:
            raise TypeError(
                f"put LockedAdminMixin before ModelAdmin in the bases of {cls.__name__}"
            )

    def __init__(self, model: type[models.Model], admin_site: AdminSite) -> None:
        super().__init__(model, admin_site)
        if not hasattr(self, "lock_key"):
            raise ImproperlyConfigured(
                f"{type(self).__name__} needs the key of a row's lock, "
                'for example lock_key = "order:<pk>"'
            )
        self._lock_template = KeyTemplate(self.lock_key)
        if self.actions is not None and ACTION not in self.actions:
            self.actions = [*self.actions, ACTION]

    def has_release_lock_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may force-release locks."""
        return request.user.has_perm("django_setnx_lock.release_lock")

    @admin.action(
        permissions=["release_lock"],
        description=gettext_lazy("Release locks of selected %(verbose_name_plural)s"),
    )
    def release_locks_of_selected(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> TemplateResponse | None:
        """Show who holds the locks of the selected rows; release them once confirmed."""
        # The action runs for a form with a row in it.
        selected = request.POST.getlist(ACTION_CHECKBOX_NAME)[:1]
        fields = [("action", ACTION), *((ACTION_CHECKBOX_NAME, pk) for pk in selected)]

        def rows_of(pks: set[str]) -> dict[str, models.Model]:
            return {str(row.pk): row for row in self.get_queryset(request).filter(pk__in=pks)}

        context = {"fields": fields}
        asked = Confirmation(self, request, RELEASE, self.lock_using, context, rows_of)
        page, _name = asked.run(partial(self._held, request, queryset))
        return page

    def _held(
        self, request: HttpRequest, queryset: QuerySet[Any], look: Inspector
    ) -> tuple[list[Target], dict[str, Any]]:
        """Return the holders of the locks of the selected rows."""
        skipped: list[str] = []
        rows_of = rows_by_key(queryset, self._lock_template, skipped)
        names = {name_for(key_prefix(), key): rows[0] for key, rows in rows_of.items()}
        tell_skipped(self, request, skipped)
        targets = [
            Target(lock=holder, row=names[info.name])
            for info in look.get_each(list(names))
            for holder in holders_of(info)
        ]
        return targets, {}

    def _lock(
        self, request: HttpRequest, where: str, key: str, **options: Unpack[Options]
    ) -> RedisLock:
        label, user = f"{where} {self.opts.label_lower}", request.user.get_username()
        given: Options = {"label": label, "using": self.lock_using, **options}
        return make_one(key, LockOptions(**given), user=user)

    def _said(self, request: HttpRequest, busy: LockBusy) -> str:
        """Say who has the lock, and since when."""
        holder = busy.holder
        who = (holder and holder.user) or _("Somebody else")
        if holder and not holder.user and request.user.has_perm("django_setnx_lock.view_lock"):
            who = str(holder)
        values = {"who": who, "name": self.opts.verbose_name}
        held_for = None
        with suppress(ImproperlyConfigured, LockError):
            held_for = inspector(self.lock_using).get(name_for(key_prefix(), busy.key)).held_for
        if held_for is None:
            return _("%(who)s is working on this %(name)s.") % values
        since = datetime.fromtimestamp(time() - held_for, timezone.get_current_timezone())
        values["time"] = formats.date_format(since, "SHORT_DATETIME_FORMAT")
        return _("%(who)s is working on this %(name)s (since %(time)s).") % values

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> Any:
        """Return the actions; those that need more than the permission to view run under locks."""
        where = {} if action_location is None else {"action_location": action_location}
        actions = super().get_actions(request, **where)
        return {name: self._under_locks(name, action) for name, action in actions.items()}

    def _under_locks(self, name: str, action: Any) -> Any:
        # From Django 6.1 on it is an object with names.
        func = action[0] if isinstance(action, tuple) else action.func
        only_views = set(getattr(func, "allowed_permissions", ())) == {"view"}
        if not self.lock_editing or name == ACTION or only_views or hasattr(func, "_lock_template"):
            return action
        locked = locked_action(self.lock_key, using=self.lock_using)(func)
        return (locked, *action[1:]) if isinstance(action, tuple) else replace(action, func=locked)

    @admin.display(description=gettext_lazy("edited by"))
    def edited_by(self, obj: Any) -> str | None:
        """Return who has the row open or works on it: a column for ``list_display``."""
        return getattr(obj, "_lock_holder", None)

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Return the list; if it says who edits, Redis is asked once for the whole page."""
        found = super().get_changelist_instance(request)
        if "edited_by" in found.list_display:
            rows_of = rows_by_key(found.result_list, self._lock_template, [])
            names = {name_for(key_prefix(), key): rows for key, rows in rows_of.items()}
            with suppress(ImproperlyConfigured, LockUnavailable):
                for info in inspector(self.lock_using).get_each(list(names)):
                    who = (info.holder and info.holder.user) or _("Somebody else")
                    for row in names[info.name] if info.is_held else ():
                        vars(row)["_lock_holder"] = who
        return found

    def get_changelist_formset(self, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the formset of ``list_editable``, which saves the rows that it gets locks of."""
        formset: Any = super().get_changelist_formset(request, **kwargs)
        take = partial(self._take_rows, request)

        class Locked(formset):  # type: ignore[misc]  # it depends on the model
            def add_fields(self, form: Any, index: int | None) -> None:
                super().add_fields(form, index)
                for name in self.form.base_fields:
                    form.fields[name].show_hidden_initial = True

            def full_clean(self) -> None:
                super().full_clean()
                if self.is_bound and self.is_valid():
                    take([form for form in self.forms if form.has_changed()])

        return Locked if self.lock_editing else formset

    def _take_rows(self, request: HttpRequest, forms: list[Any]) -> None:
        """Take the locks of changed rows; have those not saved that others edit, or changed."""
        held: list[LockHandle] = []
        setattr(request, _ROWS, held)
        skipped: list[str] = []
        manager = self.model._base_manager.using(router.db_for_write(self.model))
        for form in forms:
            why = ""
            try:
                key = key_of(form.instance, self._lock_template)
                held.append(self._lock(request, "list", key, blocking_timeout=0).take())
            except LockBusy as busy:
                why = self._said(request, busy) if self.lock_editing is True else ""
            except (LockUnavailable, ImproperlyConfigured, MissingValue, ValueError):
                pass  # What the list showed is compared all the same.
            now = manager.filter(pk=form.instance.pk).first()
            if not why and (now is None or _is_stale(form, now)):
                why = _("changed after you opened the list")
            if why:
                typed = ", ".join(f"{name}: {form[name].data}" for name in form.changed_data)
                skipped.append(f"{now or form.instance} ({why}; {typed})")
                form.has_changed = bool  # False: it is not saved.
        tell_skipped(self, request, skipped)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show the list, or save what was edited in it; if a lock was lost, nothing is saved."""
        if "_save" not in request.POST:
            return super().changelist_view(request, *args, **kwargs)
        try:
            with transaction.atomic(using=router.db_for_write(self.model)):
                response = super().changelist_view(request, *args, **kwargs)
                for held in getattr(request, _ROWS, ()):
                    held.check()
            return response
        except LockError as error:
            list(messages.get_messages(request))  # Those say that it was saved.
            self.message_user(request, _("Nothing was saved. (%s)") % error, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        finally:
            for held in getattr(request, _ROWS, ()):
                with suppress(LockError):
                    held.release()


def _is_stale(form: Any, now: models.Model) -> bool:
    """Return whether the row ``now`` is another than the list showed or the form would save."""
    fresh = type(form)(instance=now)
    for name, shown in fresh.fields.items():
        widget, bound = shown.hidden_widget(), form[name]
        seen = widget.value_from_datadict(form.data, form.files, bound.html_initial_name)
        if shown.has_changed(fresh[name].initial, seen):
            return True
    others = [one.attname for one in now._meta.concrete_fields if one.name not in form.fields]
    return any(getattr(now, name) != getattr(form.instance, name) for name in others)
