"""The action of :class:`.LockedAdminMixin` that releases the locks of selected rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy

from ..core import Inspector
from ..core.errors import LockUnavailable
from ..core.protocol.keys import name_for
from ..key_template import KeyTemplate
from ..locks import inspector, key_prefix
from .actions import rows_by_key, tell_skipped
from .confirming import Target, answer, ask, confirmed, holders_of, tell_problem
from .interventions import RELEASE

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite, ModelAdmin
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest
    from django.template.response import TemplateResponse

    _Base = ModelAdmin[Any]
else:
    _Base = object

ACTION = "release_locks_of_selected"


class ReleaseLocks(_Base):
    """A ModelAdmin with the action "Release locks of selected".

    The action is there for those with the permission ``django_setnx_lock.release_lock``. It
    asks before it does anything, and takes a lock only from the holders that were shown.
    """

    lock_key: str
    lock_using: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        bases = cls.__mro__
        if admin.ModelAdmin in bases[: bases.index(ReleaseLocks)]:
            raise TypeError(
                f"put LockedAdminMixin before ModelAdmin in the bases of {cls.__name__}"
            )

    def __init__(self, model: type[Model], admin_site: AdminSite) -> None:
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
        context = {"fields": fields}
        try:
            look = inspector(self.lock_using)
            seen = confirmed(request)
            if seen is None:
                return ask(self, request, RELEASE, self._held(request, look, queryset), context)
            rows = self.get_queryset(request).filter(pk__in={shown.row for shown in seen})
            by_pk = {str(row.pk): row for row in rows}
            mine = [shown for shown in seen if shown.row in by_pk]
            return answer(self, request, RELEASE, look, mine, context, by_pk)
        except (signing.BadSignature, ImproperlyConfigured, LockUnavailable) as error:
            tell_problem(self, request, error)
            return None

    def _held(self, request: HttpRequest, look: Inspector, queryset: QuerySet[Any]) -> list[Target]:
        """Return the holders of the locks of the selected rows."""
        skipped: list[str] = []
        rows_of = rows_by_key(queryset, self._lock_template, skipped)
        names = {name_for(key_prefix(), key): rows[0] for key, rows in rows_of.items()}
        tell_skipped(self, request, skipped)
        return [
            Target(said=said, row=names[info.name])
            for info in look.get_each(list(names))
            for said in holders_of(info)
        ]
