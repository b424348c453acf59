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
from ..models import Lock
from .actions import rows_by_key, tell_skipped
from .interventions import RELEASE, ReleaseReasonForm, lock_of, log_interventions

if TYPE_CHECKING:
    from collections.abc import Mapping

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
            look = inspector(self.lock_using)
            seen = seen_before(request)
            if seen is not None:
                queryset = self.get_queryset(request).filter(pk__in=list(seen))
            found = self._held(request, look, queryset)
        except (signing.BadSignature, ImproperlyConfigured, LockUnavailable) as error:
            tell_problem(self, request, error)
            return None
        context = {
            # The action runs for a form with a row in it; for two fields a row, Django's limit of
            # fields in a form is soon too low.
            "fields": [
                ("action", ACTION),
                *((helpers.ACTION_CHECKBOX_NAME, str(row.pk)) for row, _info in found[:1]),
            ],
            "opts": self.opts,
        }
        request.current_app = self.admin_site.name
        by_id = {str(row.pk): (row, info) for row, info in found}
        return release_or_ask(self, request, look, by_id, seen, context)

    def _held(
        self, request: HttpRequest, look: Inspector, queryset: QuerySet[Any]
    ) -> list[tuple[Model, LockInfo]]:
        """Return the selected rows whose lock somebody holds, each with that lock."""
        skipped: list[str] = []
        rows_of = rows_by_key(queryset, self._lock_template, skipped)
        names = {name_for(key_prefix(), key): rows[0] for key, rows in rows_of.items()}
        tell_skipped(self, request, skipped)
        return [(names[info.name], info) for info in look.get_each(list(names)) if info.is_held]


def seen_before(request: HttpRequest) -> dict[str, str] | None:
    """Return the fingerprints that were confirmed, None if nothing was. Raises BadSignature."""
    if not request.POST.get("post"):
        return None
    found: dict[str, str] = signing.loads(request.POST.get("seen", ""), salt=ACTION)
    return found


def tell_problem(
    modeladmin: ModelAdmin[Any],
    request: HttpRequest,
    error: signing.BadSignature | ImproperlyConfigured | LockUnavailable,
) -> None:
    """Show why nothing was released."""
    if isinstance(error, signing.BadSignature):
        text = _("The confirmation was changed or is broken: nothing was released.")
    else:
        text = problem_in_short(error)
    modeladmin.message_user(request, text, messages.ERROR)


def release_or_ask(
    modeladmin: ModelAdmin[Any],
    request: HttpRequest,
    look: Inspector,
    found: Mapping[str, tuple[Model, LockInfo]],
    seen: Mapping[str, str] | None,
    context: dict[str, Any],
) -> TemplateResponse | None:
    """Show who holds the locks that were ``found``, or release them if that was confirmed.

    ``found``: what each lock is of and the lock, by what names them in the confirmation. ``seen``:
    the fingerprints that were confirmed, by the same. Return None when there is nothing to ask.
    """
    if not found:
        text = _("Nobody holds a lock of these.")
        if seen:
            text = _("Nobody holds a lock of these any more: nothing was released.")
        modeladmin.message_user(request, text, messages.INFO)
        return None
    form = ReleaseReasonForm(None if seen is None else request.POST)
    if seen is not None and form.is_valid():
        try:
            _release(modeladmin, request, look, found, seen, form.cleaned_data["reason"])
        except LockUnavailable as error:
            tell_problem(modeladmin, request, error)
        return None
    fingerprints = {one: info.fingerprint for one, (_row, info) in found.items()}
    context = {
        **modeladmin.admin_site.each_context(request),
        "title": _("Release locks"),
        "found": [(row, Said(info)) for row, info in found.values()],
        "form": form,
        "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
        "seen": signing.dumps(
            # Those who were shown first stay those who were seen.
            {**fingerprints, **(seen or {})},
            salt=ACTION,
            compress=True,
        ),
        **context,
    }
    return TemplateResponse(request, "admin/django_setnx_lock/release_selected.html", context)


def _release(
    modeladmin: ModelAdmin[Any],
    request: HttpRequest,
    look: Inspector,
    found: Mapping[str, tuple[Model, LockInfo]],
    seen: Mapping[str, str],
    reason: str,
) -> None:
    """Release each lock from the holder who was seen. Raises LockUnavailable."""
    by = request.user.get_username()
    # What is held no more was not found.
    outcomes = Counter({Outcome.FREE: len(seen.keys() - found.keys())})
    noted: list[tuple[Model, str]] = []
    try:
        for one, (row, info) in found.items():
            outcome = look.force_release(info.name, seen.get(one, ""), by=by, reason=reason)
            outcomes[outcome] += 1
            if outcome is Outcome.RELEASED:
                if not isinstance(row, Lock):
                    note = _("Released the lock %(key)s held by %(holder)s. %(reason)s")
                    whom = info.holder or _("another program")
                    about = {"key": plain(info.key), "holder": whom, "reason": plain(reason)}
                    noted.append((row, note % about))
                noted.append((lock_of(info), RELEASE.entry(Said(info), reason)))
    finally:
        # All at once: thousands one by one take longer than their release.
        log_interventions(request.user, noted)
        if released := outcomes[Outcome.RELEASED]:
            text = ngettext("%(n)d lock was released.", "%(n)d locks were released.", released)
            modeladmin.message_user(request, text % {"n": released}, messages.SUCCESS)
        if changed := outcomes[Outcome.CHANGED_HANDS]:
            text = ngettext(
                "%(n)d lock had changed hands: nothing was released there.",
                "%(n)d locks had changed hands: nothing was released there.",
                changed,
            )
            modeladmin.message_user(request, text % {"n": changed}, messages.WARNING)
        if free := outcomes[Outcome.FREE]:
            text = ngettext(
                "%(n)d lock was free: nothing was released there.",
                "%(n)d locks were free: nothing was released there.",
                free,
            )
            modeladmin.message_user(request, text % {"n": free}, messages.WARNING)
