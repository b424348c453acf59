"""The admin pages of the locks: who holds what, and one lock in full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, unquote_plus

import django
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote, unquote
from django.core import signing
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    QueryDict,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from ..conf import get_config
from ..connection import default_alias, is_cluster, redis_aliases
from ..core.errors import LockUnavailable, LockUnsupported
from ..core.inspection import ALL_SORTED, Inspector, LockInfo, Outcome
from ..core.plain import plain
from ..core.protocol.keys import lock_keys
from ..core.wait_graph import wait_graph
from ..descriptions import (
    NOT_KNOWN,
    Said,
    holder_facts,
    meanings,
    moment,
    problem,
    redis_facts,
    since,
)
from ..locks import inspector, key_prefix
from ..models import Lock
from .export import KINDS, MOST, export
from .history import HistoryQuery, last_holds, what_is_kept
from .interventions import (
    INTERVENTIONS,
    Intervention,
    lock_of,
    log_interventions,
)
from .lock_list import Query, Walk
from .release import release_or_ask, seen_before, tell_problem
from .timeline import Hold
from .wait_graph import lines_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    _LockModelAdmin = admin.ModelAdmin[Lock]
else:
    _LockModelAdmin = admin.ModelAdmin

_PROBLEMS = (LockUnavailable, ImproperlyConfigured)
# Django's own admin does so: the filters of the list, to come back to.
FILTERS = "_changelist_filters"
# How many of those who wait for a lock its page names.
NAMED = 50
# So many locks are released together at most, and for so many seconds they are looked for.
MOST_RELEASED = 500
_WITHIN = 2.0
# The pages of one lock.
_PAGES = ("change", *(one.page for one in INTERVENTIONS), "history")


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """Addresses that remember the cache ``using`` ("": the configured one) and the list."""

    site: str
    using: str = ""
    filters: str = ""

    def to(self, page: str, *name: str, **asked: str) -> str:
        """Return the address of a ``page``, of ``name`` if given; of the list as it was.

        ``asked``: what else it is asked for.
        """
        is_list = page == "changelist"
        kept = QueryDict(self.filters).dict() if is_list else {FILTERS: self.filters}
        given = {"using": self.using, **kept, **asked}
        given = {key: value for key, value in given.items() if value}
        view = f"admin:django_setnx_lock_lock_{page}"
        args = list(map(quote, name))
        return reverse(view, args=args, query=given or None, current_app=self.site)


@dataclass(frozen=True, slots=True)
class Row(Said):
    """A lock in words, with the address of its page."""

    url: str

    @property
    def as_seen(self) -> str:
        """The lock, and the holder who was seen, for a field of a form."""
        return f"{self.info.fingerprint}:{quote_plus(self.info.name)}"

    @property
    def state_class(self) -> str:
        return "lock-" + self.info.state.name.lower().replace("_", "-")


@admin.register(Lock)
class LockAdmin(_LockModelAdmin):
    """Shows what is in Redis. There is no table, so no page reads locks from the database.

    Seeing takes the permission ``view_lock``; whatever is done to a holder ``release_lock``
    besides.
    """

    def get_urls(self) -> list[URLPattern]:
        own = [
            path(
                f"<path:object_id>/{one.page}/",
                self.admin_site.admin_view(self.intervention_view),
                {"intervention": one},
                name=f"django_setnx_lock_lock_{one.page}",
            )
            for one in INTERVENTIONS
        ]
        of_all = [
            path(
                f"{address}/",
                self.admin_site.admin_view(view),
                name=f"django_setnx_lock_lock_{name}",
            )
            for address, view, name in (
                ("release", self.release_many_view, "release_many"),
                ("history", self.all_history_view, "all_history"),
                ("graph", self.wait_graph_view, "graph"),
            )
        ]
        return [*of_all, *own, *super().get_urls()]

    def has_add_permission(self, request: HttpRequest, obj: Lock | None = None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission

    def has_release_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may see locks and take them from their holders."""
        may_release = request.user.has_perm("django_setnx_lock.release_lock")
        return may_release and self.has_view_permission(request)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Lock:
        # Asked for by the page of the log, which a lock has whether or not somebody holds it.
        return Lock(name=object_id)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show what operators did to one lock, as the admin's log has it."""
        name = unquote(object_id)
        links = self._links(request)
        context = {
            "object": Lock(name=name),
            "title": _("Operator log"),
            **self._place(links, name),
            **(extra_context or {}),
        }
        # The form that entries of the log have.
        return super().history_view(request, quote(plain(name)), context)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """List the held locks, or write them to a file."""
        links = self._links(request, filters=request.GET.urlencode())
        query = Query.from_address(request.GET)
        context: dict[str, Any] = {
            "query": query,
            "parameters": {
                name: request.GET.get(name) for name in ("o", "state", "everything", "using")
            },
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
            "release_many_url": links.to("release_many"),
        }
        kind = request.GET.get("format", "")
        try:
            if kind in KINDS:
                look = inspector(links.using or None)
                using = links.using or default_alias()
                return export(request, query, look, using, kind)  # type: ignore[return-value]  # streams
            context["scans"] = not get_config()["INDEX"] or is_cluster(
                links.using or default_alias()
            )
            found = query.read(inspector(links.using or None))
        except _PROBLEMS as error:
            context |= problem(error)
        else:
            context |= {
                "found": found,
                "rows": [Row(lock, links.to("change", lock.name)) for lock in found.locks],
                "headers": query.headers(found.order),
                "is_not_by_key": "key" in query.order and "key" not in found.order,
                "all_sorted": ALL_SORTED,
                "states": meanings(),
                "as_of": moment(found.as_of),
                "most_exported": MOST,
            }
        context |= {"title": capfirst(self.opts.verbose_name_plural), **(extra_context or {})}
        return self._response(request, "change_list", links, **context)

    def all_history_view(self, request: HttpRequest) -> HttpResponse:
        """Show how holds of all locks ended."""
        links = self._links(request)
        query = HistoryQuery.from_address(request.GET)
        context: dict[str, Any] = {
            "title": _("History"),
            "is_below_list": True,
            "query": query,
            # What a search for a part of the keys keeps.
            "parameters": {"using": links.using, "end": query.end, FILTERS: links.filters},
        }
        if query.name:
            _check(query.name)
            context |= {"subtitle": Lock(name=query.name), "url": links.to("change", query.name)}
        try:
            look = inspector(links.using or None)
            found = query.read(look)
        except _PROBLEMS as error:
            context |= problem(error)
        else:
            # What others wrote there need not be of a lock of the project, which has no page then.
            prefix = key_prefix()
            holds = [Hold.of_entry(one) for one in found.entries if one.name.startswith(prefix)]
            context |= {
                "rows": [(hold, links.to("change", hold.name)) for hold in holds],
                "onward": found.onward,
                "kept": what_is_kept(look),
            }
        return self._response(request, "all_history", links, **context)

    def release_many_view(self, request: HttpRequest) -> HttpResponse:
        """Release the locks that were chosen in the list, after a confirmation."""
        if not self.has_release_permission(request):
            raise PermissionDenied
        links = self._links(request)
        done = HttpResponseRedirect(links.to("changelist"))
        if request.method != "POST":
            return done
        query = Query.from_address(QueryDict(links.filters))
        try:
            look = inspector(links.using or None)
            seen = seen_before(request)
            chosen, about = _chosen(request, look, query, seen)
        except (signing.BadSignature, *_PROBLEMS) as error:
            tell_problem(self, request, error)
            return done
        context = {
            "opts": self.opts,
            "list_url": done.url,
            "address": links.to("release_many"),
            **about,
        }
        request.current_app = self.admin_site.name
        found = {one.name: (lock_of(one), one) for one in chosen if Said(one).is_held}
        return release_or_ask(self, request, look, found, seen, context) or done

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one lock in full, held or not."""
        name = unquote(object_id)
        links = self._links(request)
        try:
            _check(name)
            look = inspector(links.using or None)
            row = Row(look.get(name, waiters=NAMED), links.to("change", name))
            context: dict[str, Any] = {
                "row": row,
                "holder_facts": holder_facts(row),
                "redis_facts": redis_facts(row),
                **last_holds(look, row.info),
                **_queue(row, links),
            }
        except _PROBLEMS as error:
            context = problem(error)
        context |= {"title": _("View lock"), **(extra_context or {})}
        return self._response(request, "change_form", links, name=name, **context)

    def wait_graph_view(self, request: HttpRequest) -> HttpResponse:
        """Draw who waits for whom."""
        links = self._links(request)

        def row(lock: LockInfo) -> Row:
            is_own = lock.name.startswith(key_prefix())
            return Row(lock, links.to("change", lock.name) if is_own else "")

        try:
            graph = wait_graph(inspector(links.using or None))
        except _PROBLEMS as error:
            context: dict[str, Any] = problem(error)
        else:
            lines, is_cut = lines_of(graph, row)
            context = {
                "lines": lines,
                "is_cut": is_cut or graph.is_cut,
                "as_of": moment(graph.as_of) if graph.as_of else "",
            }
        context["title"] = _("Who waits for whom")
        return self._response(request, "wait_graph", links, **context)

    def intervention_view(
        self, request: HttpRequest, object_id: str, intervention: Intervention
    ) -> HttpResponse:
        """Do what the operator wants to the holder of a lock, after a confirmation."""
        if not self.has_release_permission(request):
            raise PermissionDenied
        name = unquote(object_id)
        links = self._links(request)
        try:
            _check(name)
            return self._intervene(request, name, links, intervention)
        except LockUnsupported as error:
            text = _("This cannot be done to the lock “%(key)s” as it is held now. (%(problem)s)")
            text %= {"key": Lock(name=name), "problem": plain(str(error))}
            self.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(links.to("change", name))
        except _PROBLEMS as error:
            return self._confirmation(request, links, name, intervention, **problem(error))

    def _intervene(
        self, request: HttpRequest, name: str, links: Links, intervention: Intervention
    ) -> HttpResponse:
        """Do that to the holder that was seen, if it is confirmed."""
        look = inspector(links.using or None)
        info, seen = _seen(request, look.get(name))
        row = Row(info, links.to("change", name))
        about = {"key": row.key, "holder": row.holder}
        form = intervention.form(
            request.POST if request.POST.get("post") else None, initial={"fingerprint": seen}
        )
        refusal = intervention.refused_by(row, seen)
        given: dict[str, Any] = {}
        if form.is_valid():
            by, given = request.user.get_username(), form.given()
            try:
                outcome = intervention.carry_out(look, name, seen, by=by, **given)
            except LockUnavailable as error:
                facts = problem(error, str(intervention.unsure))
                return self._confirmation(request, links, name, intervention, **facts)
        elif refusal is not None:
            outcome = refusal
        else:
            question = str(intervention.question) % about
            return self._confirmation(
                request, links, name, intervention, row=row, form=form, question=question
            )
        level = messages.WARNING
        if outcome is intervention.done:
            # Only now: a log that tells of what did not happen misleads.
            log_interventions(request.user, [(lock_of(info), intervention.entry(row, **given))])
            level = messages.SUCCESS
        self.message_user(request, str(intervention.told[outcome]) % about, level)
        # To the holder, or to the list where there is none any more.
        is_free = outcome in (Outcome.RELEASED, Outcome.DISMISSED, Outcome.FREE)
        return HttpResponseRedirect(links.to("changelist") if is_free else row.url)

    def _confirmation(
        self,
        request: HttpRequest,
        links: Links,
        name: str,
        intervention: Intervention,
        **context: Any,
    ) -> HttpResponse:
        context |= {
            "title": intervention.title,
            "intervention": intervention,
            "address": links.to(intervention.page, name),
        }
        return self._response(request, "confirmation", links, name=name, **context)

    def _links(self, request: HttpRequest, *, filters: str | None = None) -> Links:
        """Return the addresses for who may see locks. Raises Http404 for a cache without."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        using = request.GET.get("using", "")
        aliases, default = _caches()
        if using and default and using not in aliases:
            raise Http404(_("There is no django-redis cache %(name)r.") % {"name": using})
        kept = request.GET.get(FILTERS, "") if filters is None else filters
        return Links(site=self.admin_site.name, using=using, filters=kept)

    def _response(
        self, request: HttpRequest, template: str, links: Links, *, name: str = "", **context: Any
    ) -> TemplateResponse:
        request.current_app = self.admin_site.name
        aliases, default = _caches()
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            **self._place(links, name),
            "aliases": aliases if len(aliases) > 1 else [],
            "alias": links.using or default,
            "may_release": self.has_release_permission(request),
            **context,
        }
        file = f"admin/django_setnx_lock/lock/{template}.html"
        return TemplateResponse(request, file, context)

    def _place(self, links: Links, name: str) -> dict[str, Any]:
        """Return where a page is among the others, one of the lock ``name`` ("": of all)."""
        return {
            "list_url": links.to("changelist"),
            "graph_url": links.to("graph"),
            "all_history_url": links.to("all_history", name=name),
            "name": name,
            "subtitle": str(Lock(name=name)) if name else None,
            **{f"{page}_url": links.to(page, name) for page in _PAGES if name},
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
        }


def _chosen(
    request: HttpRequest, look: Inspector, query: Query, confirmed: Mapping[str, str] | None
) -> tuple[list[LockInfo], dict[str, Any]]:
    """Return the locks that were chosen to be released, and what is to be said of the choice.

    Those that were confirmed before; else all that the list finds, or those that are selected and
    did not change hands since they were.
    """
    if confirmed is None and "found" in request.POST:
        walk = Walk(query=query, look=look, most=MOST_RELEASED, within=_WITHIN, held=True)
        return list(walk), {"cut_at": MOST_RELEASED if walk.is_cut else 0}
    given = (one.partition(":") for one in request.POST.getlist(ACTION_CHECKBOX_NAME))
    selected = {unquote_plus(name): fingerprint for fingerprint, _colon, name in given}
    for name in (names := list(selected if confirmed is None else confirmed)):
        _check(name)
    locks = look.get_each(names)
    if confirmed is not None:
        return locks, {}
    same = [one for one in locks if one.fingerprint == selected[one.name]]
    return same, {"changed": len(locks) - len(same)}


def _caches() -> tuple[list[str], str]:
    """Return the caches that can keep locks and the default; nothing if the settings are wrong."""
    try:
        return redis_aliases(), default_alias()
    except ImproperlyConfigured:
        return [], ""


def _seen(request: HttpRequest, info: LockInfo) -> tuple[LockInfo, str]:
    """Return the lock, or the one of its shares that the operator saw, and that fingerprint."""
    # The fingerprint is of the page that the operator was looking at.
    seen = request.POST.get("fingerprint") or info.fingerprint
    for share in info.shares:
        if share.fingerprint == seen:
            return info.of_one(share), seen
    return info, seen


def _queue(row: Row, links: Links) -> dict[str, Any]:
    """Return who waits for a lock, and what its holders wait for themselves."""
    info = row.info
    waiters = [
        {"position": one.position, "who": str(one.holder or NOT_KNOWN), "since": since(info, one)}
        for one in info.waiters
    ]
    awaited = [
        {
            "holder": one.place,
            "key": plain(lock.key),
            "url": links.to("change", lock.name) if lock.name.startswith(key_prefix()) else "",
            "since": since(info, lock),
        }
        for one in row.shares or [row]
        if (lock := one.info.waits_for) is not None
    ]
    more = info.waiting - len(waiters)
    return {"waiters": waiters, "more_waiters": max(more, 0), "awaited": awaited}


def _check(name: str) -> None:
    """Raise Http404 when ``name`` cannot be a lock of the project in Redis."""
    try:
        lock_keys(name)
    except ValueError as error:
        raise Http404(str(error)) from error
    # Else a release could delete any string in Redis.
    if not name.startswith(key_prefix()):
        raise Http404(_("No lock's name begins so."))
