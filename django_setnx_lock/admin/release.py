"""The action that releases the locks of selected rows, for any ModelAdmin."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import django
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.errors import LockUnavailable
from ..core.inspection import Inspector, LockInfo, Outcome
from ..core.plain import plain
from ..core.protocol.keys import name_for
from ..descriptions import Said, problem_in_short
from ..key_template import KeyTemplate
from ..locks import inspector, key_prefix
from .actions import rows_by_key, tell_skipped
from .interventions import RELEASE, ReleaseReasonForm, lock_of, log_interventions

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite, ModelAdmin
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest

    _Base = ModelAdmin[Any]
else:
    _Base = object

ACTION = "release_locks_of_selected"


class ReleaseLocksMixin(_Base):
    """For a ModelAdmin: the action "Release locks of selected".

    ``lock_template``: the key of a row's lock, its ``<names>`` taken from the row, as in
    ``@locked_action``. ``lock_using``: the cache alias (None: the setting ``CACHE``).

    The action is there for those with the permission ``django_setnx_lock.release_lock``. It
    asks before it does anything, and takes a lock only from the holder that was shown.
    """

    lock_template: str
    lock_using: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        bases = cls.__mro__
        if admin.ModelAdmin in bases[: bases.index(ReleaseLocksMixin)]:
            raise TypeError(
                f"put ReleaseLocksMixin before ModelAdmin in the bases of {cls.__name__}"
            )

    def __init__(self, model: type[Model], admin_site: AdminSite) -> None:
        super().__init__(model, admin_site)
        if not hasattr(self, "lock_template"):
            raise ImproperlyConfigured(
                f"{type(self).__name__} needs the key of a row's lock, "
                'for example lock_template = "order:<pk>"'
            )
        self._lock_template = KeyTemplate(self.lock_template)
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
        try:
            form = ReleaseReasonForm(request.POST if request.POST.get("post") else None)
            look = inspector(self.lock_using)
            if request.POST.get("post"):
                seen = signing.loads(request.POST.get("seen", ""), salt=ACTION)
                queryset = self.get_queryset(request).filter(pk__in=list(seen))
            found = self._held(request, look, queryset)
            if found and form.is_valid():
                self._release(request, look, found, seen, form.cleaned_data["reason"])
                return None
        except signing.BadSignature:
            text = _("The confirmation was changed or is broken: nothing was released.")
            self.message_user(request, text, messages.ERROR)
            return None
        except (ImproperlyConfigured, LockUnavailable) as error:
            self.message_user(request, problem_in_short(error), messages.ERROR)
            return None
        if not found:
            self.message_user(request, _("Nobody holds a lock of these."), messages.INFO)
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Release locks"),
            "found": found,
            "form": form,
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
            # The action runs for a form with a row in it; for two fields a row, Django's limit of
            # fields in a form is soon too low.
            "one": found[0][0],
            "seen": signing.dumps(
                {str(row.pk): info.fingerprint for row, info in found}, salt=ACTION, compress=True
            ),
            "opts": self.opts,
            "action": ACTION,
            "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_setnx_lock/release_selected.html", context)

    def _held(
        self, request: HttpRequest, look: Inspector, queryset: QuerySet[Any]
    ) -> list[tuple[Model, LockInfo]]:
        """Return the selected rows whose lock somebody holds, each with that lock."""
        skipped: list[str] = []
        rows_of = rows_by_key(queryset, self._lock_template, skipped)
        names = {name_for(key_prefix(), key): rows[0] for key, rows in rows_of.items()}
        tell_skipped(self, request, skipped)
        return [(names[info.name], info) for info in look.get_each(list(names)) if info.is_held]

    def _release(
        self,
        request: HttpRequest,
        look: Inspector,
        found: list[tuple[Model, LockInfo]],
        seen_of: dict[str, str],
        reason: str,
    ) -> None:
        by = request.user.get_username()
        outcomes: Counter[Outcome] = Counter()
        noted: list[tuple[Model, str]] = []
        try:
            for row, info in found:
                seen = seen_of.get(str(row.pk), "")
                outcome = look.force_release(info.name, seen, by=by, reason=reason)
                outcomes[outcome] += 1
                if outcome is Outcome.RELEASED:
                    note = _("Released the lock %(key)s held by %(holder)s. %(reason)s")
                    whom = info.holder or _("another program")
                    about = {"key": plain(info.key), "holder": whom, "reason": plain(reason)}
                    noted += [
                        (row, note % about),
                        (lock_of(info), RELEASE.entry(Said(info), reason)),
                    ]
        finally:
            # All at once: thousands one by one take longer than their release.
            log_interventions(request.user, noted)
            if released := outcomes[Outcome.RELEASED]:
                text = ngettext("%(n)d lock was released.", "%(n)d locks were released.", released)
                self.message_user(request, text % {"n": released}, messages.SUCCESS)
            if spared := outcomes[Outcome.CHANGED_HANDS] + outcomes[Outcome.FREE]:
                text = ngettext(
                    "%(n)d lock had changed hands or was free: nothing was released there.",
                    "%(n)d locks had changed hands or were free: nothing was released there.",
                    spared,
                )
                self.message_user(request, text % {"n": spared}, messages.WARNING)
