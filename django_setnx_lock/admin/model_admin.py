"""``LockedAdminMixin``: two people at one form of the admin, and no edit is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin.options import TO_FIELD_VAR
from django.contrib.admin.utils import flatten_fieldsets, unquote
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import models, router, transaction
from django.http import HttpResponseRedirect, JsonResponse
from django.utils.crypto import get_random_string, salted_hmac
from django.utils.translation import gettext as _

from ..connection import default_alias
from ..core.errors import LockBusy, LockError, LockLost, LockUnavailable, LockUnsupported
from ..descriptions import problem_in_short
from ..options import LockOptions
from .actions import key_of
from .change_list import ACTION, LockedList

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.http import HttpRequest

    from ..core.locks.layered import LockHandle

# Hidden fields of the form: which page it is, and which state of the row it shows. What the page's
# script sends has a field of its own.
_PAGE, _SEEN, _SCRIPT = "_lock_page", "_lock_seen", "_lock_script"
# The attribute of a request with its Editing.
_EDITING = "_setnx_lock_editing"
# So many seconds a request waits for another of the same user about the same row.
_TURN = 5


@dataclass
class Editing:
    """What a request knows of the form that it shows or saves; ``editing`` in the template.

    ``held``: the lock, if the request has it. ``busy``: who has it, if somebody else does.
    ``problem``: why nobody can say. ``page`` and ``seen``: the hidden fields. ``was_at``: the page
    that had the lock before. ``is_kept``: whether the form is still open after the request.
    ``refusal``: why what was typed is not saved.
    """

    page: str = field(default_factory=partial(get_random_string, 12))
    seen: str = ""
    was_at: str = ""
    held: LockHandle | None = None
    busy: str = ""
    problem: str = ""
    refusal: str = ""
    is_kept: bool = False
    is_read_only: bool = False


class LockedAdminMixin(LockedList):
    """For a ModelAdmin: one person edits a row at a time, and no edit is lost.

    ``lock_key``: the key of a row's lock, its ``<names>`` taken from the row: ``"order:<pk>"``.
    ``lock_using``: the cache alias (None: the setting ``CACHE``). ``lock_editing``: whether an
    open change form holds the lock (True); with ``"warn"`` others are only warned, with False
    neither forms, lists nor actions take it. ``edit_timeout``: the seconds that the lock outlives a
    page that does not say it is open (900). ``edit_idle``: the seconds without input after which
    the page does not say so any more (3600). ``"edited_by"`` in ``list_display`` is a column that
    says who edits.

    ``list_editable``, deletion and actions skip rows that somebody has open. Raises TypeError,
    ValueError or ImproperlyConfigured for attributes that cannot be.
    """

    edit_timeout: float = 900
    edit_idle: float = 3600

    def __init__(self, model: type[models.Model], admin_site: AdminSite) -> None:
        super().__init__(model, admin_site)
        LockOptions(timeout=self.edit_timeout or 0)
        if self.lock_editing not in (True, False, "warn"):
            raise ImproperlyConfigured(
                f"{type(self).__name__}.lock_editing is True, 'warn' or False, "
                f"not {self.lock_editing!r}"
            )

    # The lock of one row

    @contextmanager
    def _at(
        self, request: HttpRequest, obj: models.Model, *, is_asked: bool = True
    ) -> Iterator[Editing]:
        """Hold the lock that this user's form left, or a new one; at the end leave or release it.

        Requests of one user about one row come one after the other. Unless the user ``is_asked``,
        a lock that was force-released is not taken again: who did that is about to take it.
        """
        editing, turn = Editing(), None
        setattr(request, _EDITING, editing)
        try:
            key = key_of(obj, self._lock_template)
            at = f"form:{request.user.pk}:{key}"
            tickets = caches[self.lock_using or default_alias()]
            take = partial(self._lock, request, "form")
            turn = take(at, blocking_timeout=_TURN).take()
            mine = take(key, timeout=self.edit_timeout, renew=False, blocking_timeout=0)
            try:
                # In no variable: reports of errors show those.
                editing.held = mine.adopt(tickets.get(at) or "")
                editing.was_at = tickets.get(f"{at}:page") or ""
            except (LockLost, ValueError) as lost:
                by = getattr(lost, "forced_by", "")
                if by and not is_asked:
                    editing.busy = _(
                        "%(who)s has taken this from you; what you typed is not saved."
                    ) % {"who": by}
                else:
                    editing.held = mine.take()
        except LockBusy as busy:
            editing.busy = self._said(request, busy)
        except (LockUnavailable, ImproperlyConfigured) as error:
            editing.problem = problem_in_short(error)
        except Exception as error:  # noqa: BLE001 - the cache's, too
            editing.problem = str(error)
        try:
            yield editing
        finally:
            try:
                if editing.held and editing.is_kept:
                    with suppress(LockUnsupported):
                        tickets.set(at, editing.held.give_away(), self.edit_timeout)
                        tickets.set(f"{at}:page", editing.page, self.edit_timeout)
                if editing.held and not (editing.held.released or editing.held.lost):
                    editing.held.release()
            except Exception as error:  # noqa: BLE001 - and no log, as its frames have the ticket
                text = _("The lock was lost: somebody else may have saved meanwhile. (%s)") % error
                self.message_user(request, text, messages.WARNING)
            if turn:
                with suppress(LockError):
                    turn.release()

    def _row(self, request: HttpRequest, object_id: str | None) -> Any:
        """Return the row that the address names, None if there is none."""
        to_field = request.POST.get(TO_FIELD_VAR, request.GET.get(TO_FIELD_VAR))
        if object_id is None or (to_field and not self.to_field_allowed(request, to_field)):
            return None
        return self.get_object(request, unquote(object_id), to_field)

    def _state(self, request: HttpRequest, obj: Any) -> str:
        """Return what stands for the values of all fields that a form of ``obj`` has."""
        names = flatten_fieldsets(self.get_fieldsets(request, obj))
        form = self.get_form(request, obj, change=True, fields=names)(instance=obj)
        rows = [self.opts.label, obj.pk, _plain(form.initial)]
        for formset, inline in self.get_formsets_with_inlines(request, obj):
            prefix = formset.get_default_prefix()
            given = self.get_formset_kwargs(request, obj, inline, prefix)
            for posted in ("data", "files", "save_as_new"):
                given.pop(posted, None)
            shown = [
                (row.instance.pk, _plain(row.initial)) for row in formset(**given).initial_forms
            ]
            rows += [prefix, sorted(map(repr, shown))]
        return salted_hmac(_SEEN, repr(rows), algorithm="sha256").hexdigest()

    # The change form

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Show the form and leave the lock with it; save under the lock, or show it again."""
        view = partial(super().changeform_view, request, object_id, *args, **kwargs)
        is_post = request.method == "POST"
        obj = None
        if self.lock_editing and (is_post or request.method == "GET"):
            obj = self._row(request, object_id)
        if obj is None or not self.has_change_permission(request, obj):
            return view()
        if request.POST.get("action") == ACTION:
            return self._take_over(request, obj)
        if _SCRIPT in request.POST:
            return self._hear_script(request, obj)
        with self._at(request, obj) as editing:
            if {"_leave", "_saveasnew"} & set(request.POST):
                self._leave(request, editing)
                is_left = "_leave" in request.POST
                return self.response_post_save_change(request, obj) if is_left else view()
            if is_post:
                return self._save(request, object_id, editing, view)
            editing.is_read_only = bool(editing.busy) and self.lock_editing is True
            if not editing.is_read_only:
                editing.seen = self._state(request, self._row(request, object_id))
            return view()

    def _hear_script(self, request: HttpRequest, obj: models.Model) -> JsonResponse:
        """Keep the lock of the user's open form for longer, or give it up when that is left."""
        with self._at(request, obj, is_asked=False) as editing:
            if "_leave" in request.POST:
                self._leave(request, editing)
            else:
                editing.is_kept, editing.page = True, request.POST.get(_PAGE, "")
        return JsonResponse({"problem": editing.busy})

    def _leave(self, request: HttpRequest, editing: Editing) -> None:
        """Give up the lock, unless another tab has the form open, too."""
        editing.is_kept = editing.was_at not in ("", request.POST.get(_PAGE))
        editing.page = editing.was_at

    def _save(
        self,
        request: HttpRequest,
        object_id: str | None,
        editing: Editing,
        view: Callable[[], Any],
    ) -> Any:
        """Save what was sent; show it again with the reason if it cannot be saved."""
        editing.seen, editing.was_at = request.POST.get(_SEEN, ""), ""
        if self.lock_editing is True:
            editing.refusal = editing.busy
        using = router.db_for_write(self.model)
        try:
            with transaction.atomic(using=using):
                row = self._row(request, object_id)
                # Without the lock, too, it does not change between the comparison and the end.
                rows = self.model._base_manager.using(using).select_for_update()
                if row and rows.filter(pk=row.pk).first():
                    row = self._row(request, object_id)
                if row and not editing.refusal and editing.seen != self._state(request, row):
                    editing.refusal = _(
                        "This %(name)s was changed after you opened it. What you typed was not "
                        "saved: open it again in another tab, and enter your changes there."
                    ) % {"name": self.opts.verbose_name}
                response = view()
        except LockError as error:
            # Rolled back. It was lost, or saving asks for another lock and did not get that.
            editing.refusal = _("Nothing was saved. (%s)") % error
            response = view()
        if "_continue" in request.POST and not editing.is_kept:
            editing.is_kept, editing.page = True, ""
        editing.is_kept = editing.is_kept and not editing.refusal
        return response

    def _take_over(self, request: HttpRequest, obj: models.Model) -> Any:
        """Ask whether to force-release the lock of this one row; do it, and open the form."""
        if not self.has_release_lock_permission(request):
            raise PermissionDenied
        rows = self.get_queryset(request).filter(pk=obj.pk)
        page = self.release_locks_of_selected(request, rows)
        return page or HttpResponseRedirect(request.get_full_path())

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Return the form, which is not valid where it cannot be saved now."""
        form: Any = super().get_form(request, *args, **kwargs)
        editing: Editing | None = getattr(request, _EDITING, None)
        refusal = editing and editing.refusal
        if not refusal:
            return form

        class Refused(form):  # type: ignore[misc]  # it depends on the request
            def full_clean(self) -> None:
                super().full_clean()
                if self.is_bound:
                    self.add_error(None, refusal)

        return Refused

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Render the form with its hidden fields, in the template that it has without them."""
        editing: Editing | None = getattr(request, _EDITING, None)
        row = context["original"]
        if editing and editing.is_read_only:
            context["show_delete"] = False
        response: Any = super().render_change_form(request, context, *args, **kwargs)
        if editing and row:
            editing.is_kept = True
            response.context_data |= {
                "editing": editing,
                "form_template": response.resolve_template(response.template_name),
                "release": ACTION if self.has_release_lock_permission(request) else "",
                "renew_every": self.edit_timeout / 3,
                "edit_idle": self.edit_idle,
            }
            response.template_name = "admin/django_setnx_lock/editing.html"
        return response

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, too, while the form of a row is shown that somebody else edits."""
        editing: Editing | None = getattr(request, _EDITING, None)
        is_read_only = editing is not None and editing.is_read_only
        return not is_read_only and super().has_change_permission(request, obj)

    def response_change(self, request: HttpRequest, obj: models.Model) -> Any:
        """Say that it was saved if the lock is still held; else raise LockLost: rolled back."""
        _check(request)
        return super().response_change(request, obj)

    # Deletion

    def delete_view(self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any) -> Any:
        """Delete under the lock; nothing is deleted that somebody else has open."""
        view = partial(super().delete_view, request, object_id, *args, **kwargs)
        obj = self._row(request, object_id) if request.method == "POST" else None
        if obj is None or not self.lock_editing or not self.has_delete_permission(request, obj):
            return view()
        with self._at(request, obj) as editing:
            try:
                if editing.held:
                    return view()
                why = editing.busy or editing.problem
            except LockError as error:
                why = str(error)
        self.message_user(request, _("Nothing was deleted. (%s)") % why, messages.ERROR)
        return HttpResponseRedirect("../change/")

    def response_delete(self, request: HttpRequest, *args: Any) -> Any:
        """Say that it was deleted if the lock is still held; else raise LockLost: rolled back."""
        _check(request)
        return super().response_delete(request, *args)


def _check(request: HttpRequest) -> None:
    """Raise LockLost where the request had a lock and has it no longer."""
    editing: Editing | None = getattr(request, _EDITING, None)
    if editing and editing.held:
        editing.held.check()


def _plain(initial: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the values of a form as texts that are the same for equal values."""

    def text(value: Any) -> Any:
        if isinstance(value, models.Model):
            return str(value.pk)
        is_many = isinstance(value, (list, tuple, models.QuerySet))
        if is_many and all(isinstance(row, models.Model) for row in value):
            return sorted(map(text, value))
        return str(value)

    return [(name, text(value)) for name, value in sorted(initial.items())]
