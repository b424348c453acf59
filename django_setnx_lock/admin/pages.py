"""The admin pages of the locks: who holds what, and one lock in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from ..conf import get_config
from ..connection import default_alias, is_cluster, redis_aliases
from ..core.errors import LockUnavailable
from ..core.inspection import LockInfo
from ..core.keys import lock_keys
from ..locks import inspector, key_prefix
from ..models import Lock
from ..words import facts, holder_facts, problem
from . import listing
from .force_release import release_page
from .links import FILTERS, Links
from .words import Row

if TYPE_CHECKING:
    _LockModelAdmin = admin.ModelAdmin[Lock]
else:
    _LockModelAdmin = admin.ModelAdmin

_PROBLEMS = (LockUnavailable, ImproperlyConfigured)


@admin.register(Lock)
class LockAdmin(_LockModelAdmin):
    """Shows what is in Redis. There is no table, so nothing here is read from the database.

    Seeing takes the permission ``view_lock``; releasing ``release_lock`` besides.
    """

    def get_urls(self) -> list[URLPattern]:
        release = path(
            "<path:object_id>/release/",
            self.admin_site.admin_view(self.release_view),
            name=f"{self.opts.app_label}_{self.opts.model_name}_release",
        )
        return [release, *super().get_urls()]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Lock | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Lock | None = None) -> bool:
        return False

    def has_release_permission(self, request: HttpRequest) -> bool:
        """Whether the user may see locks and take them from their holders."""
        may_release = request.user.has_perm(f"{self.opts.app_label}.release_lock")
        return may_release and self.has_view_permission(request)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Lock:
        # Asked for by the history page, which a lock has whether or not somebody holds it.
        return Lock(name=object_id)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list of the held locks."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        links = self._links(request, filters=request.GET.urlencode())
        query = listing.Query.from_address(request.GET)
        context: dict[str, Any] = {
            "query": query,
            "parameters": {name: request.GET.get(name) for name in ("o", "everything", "using")},
            "scans": not get_config()["INDEX"] or is_cluster(links.using or default_alias()),
        }
        try:
            locks, page = listing.read(inspector(links.using or None), query)
        except _PROBLEMS as error:
            context |= problem(error)
        else:
            context |= {
                "rows": [self.row(lock, links) for lock in locks],
                "headers": listing.headers(query),
                "count": max(page.paginator.count, len(locks)),
                "page": page,
                "page_range": page.paginator.get_elided_page_range(page.number),
            }
        context |= {"title": capfirst(self.opts.verbose_name_plural), **(extra_context or {})}
        return self._response(request, "change_list", links, **context)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """One lock in full, held or not."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        name = _name(object_id)
        links = self._links(request)
        try:
            row = self.row(inspector(links.using or None).get(name), links)
            context: dict[str, Any] = {
                "row": row,
                "facts": facts(row),
                "holder_facts": holder_facts(row),
            }
        except _PROBLEMS as error:
            context = problem(error)
        context |= {"title": _("View lock"), **(extra_context or {})}
        return self._response(request, "change_form", links, name=name, **context)

    def release_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Release a lock by force, after a confirmation."""
        if not self.has_release_permission(request):
            raise PermissionDenied
        name = _name(object_id)
        links = self._links(request)
        try:
            return release_page(self, request, name, links)
        except _PROBLEMS as error:
            return self.release_response(request, links, name, **problem(error))

    def release_response(
        self, request: HttpRequest, links: Links, name: str, **context: Any
    ) -> HttpResponse:
        """The page that asks whether to release."""
        return self._response(
            request,
            "release_confirmation",
            links,
            title=_("Force-release lock"),
            is_release=True,
            name=name,
            **context,
        )

    def row(self, info: LockInfo, links: Links) -> Row:
        """A lock as it is shown."""
        return Row(info, links.to("change", info.name), links.to("release", info.name))

    def _links(self, request: HttpRequest, *, filters: str | None = None) -> Links:
        """The addresses for this request. Raises Http404 for a cache that keeps no locks."""
        using = request.GET.get("using", "")
        if using and using not in redis_aliases():
            raise Http404(_("There is no django-redis cache %(name)r.") % {"name": using})
        kept = request.GET.get(FILTERS, "") if filters is None else filters
        return Links(opts=self.opts, site=self.admin_site.name, using=using, filters=kept)

    def _response(
        self, request: HttpRequest, template: str, links: Links, *, name: str = "", **context: Any
    ) -> TemplateResponse:
        request.current_app = self.admin_site.name
        aliases = redis_aliases()
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "links": links,
            "list_url": links.to_list(),
            "name": name,
            "subtitle": str(Lock(name=name)) if name else None,
            "detail_url": links.to("change", name) if name else "",
            "history_url": links.to("history", name) if name else "",
            "aliases": aliases if len(aliases) > 1 else [],
            "alias": links.using or default_alias(),
            "may_release": self.has_release_permission(request),
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
            **context,
        }
        return TemplateResponse(
            request, f"admin/{self.opts.app_label}/{self.opts.model_name}/{template}.html", context
        )


def _name(object_id: str) -> str:
    """The Redis name in an address. Raises Http404 when it cannot be a lock of the project."""
    name = unquote(object_id)
    try:
        lock_keys(name)
    except ValueError as error:
        raise Http404(str(error)) from error
    # Else a release could delete any string in Redis.
    if not name.startswith(key_prefix()):
        raise Http404(_("No lock's name begins so."))
    return name
