"""The admin pages of the locks: who holds what, and one lock in full."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, unquote_plus

import django
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from ..conf import get_config
from ..connection import default_alias, redis_aliases
from ..core import Inspector
from ..core.errors import LockUnavailable
from ..core.holder import plain
from ..core.inspection.lock_info import LockInfo, State
from ..core.protocol.keys import meta_key, name_for
from ..descriptions import (
    EndPresenter,
    LockPresenter,
    end_word,
    holder_facts,
    meanings,
    moment,
    problem,
    redis_facts,
    since,
    state_word,
    urgency,
    usual_hold,
    waiters,
)
from ..history import End, last, unaware
from ..interventions import INTERVENTIONS, Intervention
from ..locks import inspector, key_prefix
from ..models import Lock
from .confirming import Confirmation, Target, holders_of

if TYPE_CHECKING:
    _LockModelAdmin = admin.ModelAdmin[Lock]
else:
    _LockModelAdmin = admin.ModelAdmin

_PROBLEMS = (LockUnavailable, ImproperlyConfigured)
# Django's own admin does so: the filters of the list, to come back to.
FILTERS = "_changelist_filters"
# At how many callers that wait the page of a lock looks.
_QUEUED = 500
# So many locks, or ends of holds, are on a page of a list.
_PER_PAGE = 50
# Where there are more than can be looked at, so many are.
_OF_MORE = 300
# For so many seconds names are looked through.
_WITHIN = 0.2
# At so many ends of holds the list looks, and for so many seconds it speaks of leases that ran out.
_LATEST, _RECENT = 200, 3600
# A filter of the list beside the states.
_WAITING = "waiting"
# The pages of one lock.
_PAGES = ("change", "history")


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
class Row(LockPresenter):
    """A lock in words, with the address of its page."""

    url: str

    @property
    def as_seen(self) -> str:
        """The lock, and the holder who was seen, for a field of a form."""
        return f"{self.info.fingerprint}:{quote_plus(self.info.name)}"


class Query:
    """What was asked of the list, and what it finds.

    What makes no sense in an address counts as not asked. Once it is read there are ``locks``,
    worst first or by key; ``counts`` of those that the search keeps, by state: its slug, word and
    number; at how many it ``looked_at``, whether there are others (``is_cut``), and ``as_of`` when.
    """

    locks: Sequence[LockInfo] = ()

    def __init__(self, parameters: QueryDict) -> None:
        """Take ``q``, ``state`` and ``o`` (``key`` or ``worst``)."""
        state = parameters.get("state", "")
        self.state = state if state in {_WAITING, *(known.slug for known in State)} else ""
        self.search = parameters.get("q", "").strip()
        self.order = "key" if parameters.get("o") == "key" else "worst"
        self.is_filtered = bool(self.search or self.state)

    def read(self, look: Inspector) -> Sequence[LockInfo]:
        """Return what is found. Of a search for a whole key, that lock comes first."""
        seen = look.find(first=_OF_MORE, search=self.search, within=_WITHIN)
        self.looked_at, self.is_cut, locks = seen.looked_at, seen.is_cut, [*seen.locks]
        whole = ""
        # The search may be for a name that is not listed, or that no lock can have.
        with suppress(ValueError):
            whole = name_for(key_prefix(), self.search) if self.search else ""
            if whole and whole not in {lock.name for lock in locks}:
                locks += [lock for lock in [look.get(whole)] if lock.state is not State.FREE]
        kept = sorted((lock for lock in locks if self.keeps(lock)), key=lambda lock: lock.key)
        if self.order == "worst":
            kept.sort(key=urgency)
        self.locks = sorted(kept, key=lambda lock: lock.name != whole)
        counts = Counter(slug for lock in locks for slug in _filters(lock))
        labels = {state.slug: state_word(state) for state in State} | {_WAITING: _("waited for")}
        known = [(slug, label, counts[slug]) for slug, label in labels.items()]
        self.counts = [one for one in known if one[2] or one[0] == self.state]
        self.as_of = moment(max((lock.as_of for lock in locks), default=time.time()))
        return self.locks

    def keeps(self, lock: LockInfo) -> bool:
        """Return whether ``lock`` is in the state that is asked for."""
        return not self.state or self.state in _filters(lock)


def _filters(lock: LockInfo) -> set[str]:
    """Return the filters that keep ``lock`` in the list."""
    return {*(state.slug for state in lock.states), *([_WAITING] if lock.waiting else [])}


@admin.register(Lock)
class LockAdmin(_LockModelAdmin):
    """Shows what is in Redis. There is no table, so no page reads locks from the database.

    Seeing takes the permission ``view_lock``; whatever is done to a holder ``release_lock``
    besides.
    """

    def get_urls(self) -> list[URLPattern]:
        def page(name: str, view: Any, **given: Any) -> URLPattern:
            whole = f"django_setnx_lock_lock_{name}"
            address = f"{name.removeprefix('all_')}/"
            found: URLPattern = path(address, self.admin_site.admin_view(view), given, name=whole)
            return found

        interventions = [
            page(what.page, self.intervention_view, what=what) for what in INTERVENTIONS
        ]
        return [page("all_history", self.all_history_view), *interventions, *super().get_urls()]

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
        """List the held locks."""
        links = self._links(request, filters=request.GET.urlencode())
        query = Query(request.GET)
        context: dict[str, Any] = {
            "title": capfirst(self.opts.verbose_name_plural),
            "query": query,
            "parameters": {name: request.GET.get(name) for name in ("o", "state", "using")},
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
            "ran_out_url": links.to("all_history", q=end_word(End.RAN_OUT)),
        }
        try:
            page = self._page(request, query.read(inspector(links.using or None)))
            context |= {
                **page,
                "rows": [Row(lock, links.to("change", lock.name)) for lock in page["page"]],
                "states": meanings(),
                **_ends(links, most=_LATEST),
            }
        except _PROBLEMS as error:
            context |= problem(error)
        context |= extra_context or {}
        return self._response(request, "change_list", links, **context)

    def all_history_view(self, request: HttpRequest) -> HttpResponse:
        """Show how holds of all locks ended."""
        links = self._links(request)
        name, search = request.GET.get("name", ""), request.GET.get("q", "").strip()
        context: dict[str, Any] = {
            "title": _("History"),
            "is_below_list": True,
            "query": {"name": name, "search": search},
            # What a search keeps.
            "parameters": {"using": links.using, FILTERS: links.filters},
        }
        if name:
            _check(name)
            context |= {"subtitle": Lock(name=name), "url": links.to("change", name)}
        try:
            ends = _ends(links, name)
            found = [one for one in ends.get("ends", ()) if one.has(search)]
            page = self._page(request, found)
            rows = [(one, links.to("change", one.entry.name)) for one in page["page"]]
            context |= {**page, "rows": rows, **ends, **ends.get("history_problem", {})}
        except ImproperlyConfigured as error:
            context |= problem(error)
        return self._response(request, "all_history", links, **context)

    def _page(self, request: HttpRequest, found: Sequence[Any]) -> dict[str, Any]:
        paginator: Any = self.get_paginator(request, found, _PER_PAGE)  # type: ignore[arg-type]  # a sequence will do
        page = paginator.get_page(request.GET.get("p"))
        return {"page": page, "pages": paginator.get_elided_page_range(page.number)}

    def intervention_view(self, request: HttpRequest, what: Intervention) -> HttpResponse:
        """Do what the operator wants to the holders that were chosen, after a confirmation."""
        if not self.has_release_permission(request):
            raise PermissionDenied
        links = self._links(request)
        done = HttpResponseRedirect(links.to("changelist"))
        if request.method != "POST":
            return done
        choose = partial(_chosen, request, Query(QueryDict(links.filters)))
        context = {"list_url": done.url, "address": links.to(what.page)}
        asked = Confirmation(self, request, what, links.using or None, context)
        page, name = asked.run(choose)
        return page or (HttpResponseRedirect(links.to("change", name)) if name else done)

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
            info = inspector(links.using or None).get(name, waiters=_QUEUED)
            row = Row(info, links.to("change", name))
            lines, others = waiters(info)
            context: dict[str, Any] = {
                "row": row,
                "holder_facts": holder_facts(row),
                "redis_facts": redis_facts(row),
                "waiters": lines,
                "more_waiters": others,
                "awaited": _awaited(row, links),
                **_ends(links, name),
            }
        except _PROBLEMS as error:
            context = problem(error)
        context |= {"title": _("View lock"), **(extra_context or {})}
        return self._response(request, "change_form", links, name=name, **context)

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
            **{f"{what.page}_url": links.to(what.page) for what in INTERVENTIONS},
            "all_history_url": links.to("all_history", name=name),
            "name": name,
            "subtitle": str(Lock(name=name)) if name else None,
            **{f"{page}_url": links.to(page, name) for page in _PAGES if name},
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
        }


def _chosen(
    request: HttpRequest, query: Query, look: Inspector
) -> tuple[list[Target], dict[str, Any]]:
    """Return the holders that were chosen, and what is to be said of them.

    All that the list finds, or those that are selected and did not change hands since they were.
    Where the list is of one state, only the holders in that state.
    """
    if "found" in request.POST:
        holders = [one for lock in query.read(look) for one in holders_of(lock, query.state)]
        return [Target(lock=holder) for holder in holders], {}
    boxes = (box.partition(":") for box in request.POST.getlist(ACTION_CHECKBOX_NAME))
    selected = [(unquote_plus(name), fingerprint) for fingerprint, _colon, name in boxes]
    names = {name for name, _fingerprint in selected}
    for name in names:
        _check(name)
    locks = {lock.name: lock for lock in look.get_each(list(names))}
    state = query.state if "selected" in request.POST else ""
    targets, changed = [], 0
    for name, fingerprint in selected:
        lock = locks[name]
        holders = [one for one in holders_of(lock) if one.info.fingerprint == fingerprint]
        if fingerprint == lock.fingerprint and (not state or query.keeps(lock)):
            holders = holders_of(lock, state)
        changed += not holders
        targets += [Target(lock=holder) for holder in holders]
    return targets, {"changed": changed, "names": names}


def _caches() -> tuple[list[str], str]:
    """Return the caches that can keep locks and the default; nothing if the settings are wrong."""
    try:
        return redis_aliases(), default_alias()
    except ImproperlyConfigured:
        return [], ""


def _awaited(row: Row, links: Links) -> list[tuple[str, str, str, str]]:
    """Return of each holder that waits itself: who, the key, its address, and since when."""
    return [
        (
            holder.place,
            plain(lock.key),
            links.to("change", lock.name) if lock.name.startswith(key_prefix()) else "",
            since(row.info, lock.waited),
        )
        for holder in row.shares or [row]
        if (lock := holder.info.waits_for) is not None
    ]


def _ends(links: Links, name: str = "", most: int | None = None) -> dict[str, Any]:
    """Return what pages say of ended holds, of the lock of that ``name`` alone, or why they cannot.

    ``most``: at how many to look.
    """
    try:
        entries = last(links.using or None, name=name or None, most=most)
    except LockUnavailable as error:
        # The rest of the page is known all the same.
        return {"history_problem": problem(error)}
    kept = _("No history is kept: the setting HISTORY is 0.")
    if length := get_config()["HISTORY"]:
        kept = _(
            "The history has the last %(length)d notable ends: of holds that were lost, "
            "force-released, waited for or long, of leases that ran out, and of waits in vain."
        ) % {"length": length}
    recent = time.time() - _RECENT
    return {
        "ends": list(map(EndPresenter, entries)),
        "unaware": list(map(EndPresenter, unaware(entries))),
        "ran_out": sum(one.end is End.RAN_OUT and one.at > recent for one in entries),
        "usual": usual_hold(entries),
        "kept": kept,
    }


def _check(name: str) -> None:
    """Raise Http404 when ``name`` cannot be a lock of the project in Redis."""
    try:
        meta_key(name)
    except ValueError as error:
        raise Http404(str(error)) from error
    # Else a release could delete any string in Redis.
    if not name.startswith(key_prefix()):
        raise Http404(_("This is not a lock of this project."))
