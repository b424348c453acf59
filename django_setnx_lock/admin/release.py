"""A ModelAdmin action that force-releases the locks of the selected rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.core.exceptions import ImproperlyConfigured
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.errors import LockUnavailable
from ..core.inspection import Inspector, LockInfo, Outcome
from ..core.keys import name_for
from ..core.keytemplate import KeyTemplate
from ..locks import inspector, key_prefix
from .actions import rows_by_key, tell_skipped

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
        """Whether the user may force-release locks."""
        return request.user.has_perm("django_setnx_lock.release_lock")

    @admin.action(
        permissions=["release_lock"],
        description=gettext_lazy("Release locks of selected %(verbose_name_plural)s"),
    )
    def release_locks_of_selected(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> TemplateResponse | None:
        """Show who holds the locks of the selected rows; when confirmed, take those away."""
        try:
            look = inspector(self.lock_using)
            found = self._held(request, look, queryset)
            if found and request.POST.get("post"):
                self._release(request, look, found)
                return None
        except LockUnavailable as error:
            self.message_user(request, str(error), messages.ERROR)
            return None
        if not found:
            self.message_user(request, _("Nobody holds a lock of these."), messages.INFO)
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Release locks"),
            "found": found,
            "opts": self.opts,
            "action": ACTION,
            "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_setnx_lock/release_selected.html", context)

    def _held(
        self, request: HttpRequest, look: Inspector, queryset: QuerySet[Any]
    ) -> list[tuple[Model, LockInfo]]:
        """The selected rows whose lock somebody holds, each with that lock."""
        skipped: list[str] = []
        names: dict[str, Model] = {}
        for key, (row, *_others) in rows_by_key(queryset, self._lock_template, skipped).items():
            names[name_for(key_prefix(), key)] = row
        tell_skipped(self, request, skipped)
        infos = look.get_each(list(names))
        return [(names[info.name], info) for info in infos if info.fingerprint]

    def _release(
        self, request: HttpRequest, look: Inspector, found: list[tuple[Model, LockInfo]]
    ) -> None:
        reason = request.POST.get("reason", "").strip()[:200]
        by = request.user.get_username()
        outcomes: Counter[Outcome] = Counter()
        try:
            for row, info in found:
                seen = request.POST.get(f"seen-{row.pk}", "")
                outcome = look.force_release(info.name, seen, by=by, reason=reason)
                outcomes[outcome] += 1
                if outcome is Outcome.RELEASED:
                    note = _("Released the lock %(key)s held by %(holder)s. %(reason)s")
                    whom = info.holder or _("another program")
                    self.log_change(
                        request, row, note % {"key": info.key, "holder": whom, "reason": reason}
                    )
        finally:
            self._tell(request, outcomes)

    def _tell(self, request: HttpRequest, outcomes: Counter[Outcome]) -> None:
        released = outcomes[Outcome.RELEASED]
        spared = outcomes[Outcome.CHANGED_HANDS] + outcomes[Outcome.FREE]
        if released:
            text = ngettext("%(n)d lock was released.", "%(n)d locks were released.", released)
            self.message_user(request, text % {"n": released}, messages.SUCCESS)
        if spared:
            text = ngettext(
                "%(n)d lock had changed hands or was free: nothing was released there.",
                "%(n)d locks had changed hands or were free: nothing was released there.",
                spared,
            )
            self.message_user(request, text % {"n": spared}, messages.WARNING)
