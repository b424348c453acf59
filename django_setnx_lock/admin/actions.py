"""``@locked_action``: a ModelAdmin action that runs under the lock of each selected row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import messages
from django.contrib.admin.sites import all_sites
from django.contrib.admin.utils import model_ngettext
from django.core.checks import CheckMessage, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..checks import message, unusable_caches
from ..core.connections.backend import BLOCKING, run
from ..core.errors import LockBusy, LockError, LockLost, LockUnavailable, LockUnsupported
from ..core.locks import several
from ..core.protocol.keys import meta_key, name_for
from ..descriptions import duration, problem_in_short
from ..key_template import KeyTemplate, MissingValue
from ..locks import key_prefix, make_one
from ..options import LockOptions

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest, HttpResponseBase
    from typing_extensions import Unpack

    from ..core.locks.layered import LockHandle, RedisLock
    from ..options import Options

    Action = Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponseBase | None]

_Action = TypeVar("_Action", bound="Action")

# How many a message names before it only counts them.
_NAMED = 10


def locked_action(template: str, **options: Unpack[Options]) -> Callable[[_Action], _Action]:
    """Run a ModelAdmin action under the lock of each selected object.

    ``template``: the key, its ``<names>`` taken from the object: ``"order:<pk>"``.
    ``options``: those of :class:`LockOptions`, but for ``blocking_timeout``; ``label`` is the
    action's name by default.

    All locks are taken in one round trip, without waiting. The action gets a queryset of the
    rows whose lock was free; a message names the others, and who holds them to those
    with the permission ``view_lock``. When Redis cannot be reached nothing is done, and a message
    says so. Raises ValueError or TypeError at decoration for a malformed template or a bad option.
    """
    parsed, given = KeyTemplate(template), LockOptions(**options)
    if "blocking_timeout" in options:
        raise TypeError("the locks of an action are taken without waiting: no blocking_timeout")

    def decorate(action: _Action) -> _Action:
        @wraps(action)
        def locked(
            modeladmin: ModelAdmin[Any], request: HttpRequest, queryset: QuerySet[Any]
        ) -> HttpResponseBase | None:
            skipped: list[str] = []
            may_see = request.user.has_perm("django_setnx_lock.view_lock")
            try:
                rows_of = rows_by_key(queryset, parsed, skipped)
                usual = f"action {modeladmin.opts.label_lower}.{action.__name__}"
                own, user = replace(given, label=given.label or usual), request.user.get_username()
                made = [make_one(key, own, user=user) for key in rows_of]
                taken = take_each(made)
            except (ImproperlyConfigured, LockUnavailable, LockUnsupported) as error:
                why = str(error) if isinstance(error, LockUnsupported) else problem_in_short(error)
                text = _("Nothing was done: %(problem)s") % {"problem": why}
                modeladmin.message_user(request, text, messages.ERROR)
                return None
            held = [attempt.held for attempt in taken if attempt.held]
            try:
                for attempt in taken:
                    if attempt.error:
                        why = _why_not(attempt.error) if may_see else _("its lock is busy")
                        skipped += [f"{row} ({why})" for row in rows_of[attempt.lock.key]]
                keys = {row.pk: handle.key for handle in held for row in rows_of[handle.key]}
                rows = _unchanged(queryset, parsed, keys, skipped)
                if rows is None:
                    for unused in held:
                        unused.grant.was_in_vain = True
                response = action(modeladmin, request, rows) if rows is not None else None
            finally:
                for failed in run(several.release_each(BLOCKING, held)):
                    modeladmin.message_user(request, _not_released(failed), messages.ERROR)
            tell_skipped(modeladmin, request, skipped)
            return response

        locked._lock_template = parsed  # type: ignore[attr-defined]  # read by the system checks
        locked.lock_using = given.using  # type: ignore[attr-defined]  # the same
        return locked  # type: ignore[return-value]  # wraps() keeps the kind of callable

    return decorate


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of taking one of several locks: ``held``, or ``error`` telling why not."""

    lock: RedisLock
    held: LockHandle | None = None
    error: LockBusy | LockUnavailable | None = None


def take_each(locks: Sequence[RedisLock]) -> list[Taken]:
    """Take each of ``locks`` that is free, without waiting; return the results in that order.

    They are asked for in the order of their names, one after the other. Raises LockUnavailable,
    holding nothing, when their server cannot be reached or does not answer; of a cluster, the locks
    of that node are told to be unavailable, and are not asked for.
    """
    taken: dict[RedisLock, Taken] = {}
    down: dict[object, LockUnavailable] = {}
    try:
        for lock in sorted(locks, key=lambda each: each.name):
            session = lock.session_for(BLOCKING)
            node = session.at(lock.name)
            try:
                if node in down:
                    raise down[node]
                taken[lock] = Taken(lock, lock.take(0))
            except LockUnavailable as error:
                if error.cause in {"unreachable", "timeout", "replicas"}:
                    if node is session:
                        raise
                    down[node] = error
                taken[lock] = Taken(lock, error=error)
            except LockBusy as error:
                taken[lock] = Taken(lock, error=error)
        return [taken[lock] for lock in locks]
    except BaseException:
        held = [one.held for one in taken.values() if one.held is not None]
        run(several.release_each(BLOCKING, held))
        raise


def _not_released(error: LockError) -> str:
    """Say what ``error`` of a release means."""
    text = _("A lock was not released: it ends with its lease. (%(problem)s)")
    if isinstance(error, LockLost):
        text = _(
            "A lock was lost: somebody else may have worked on this at the same time. (%(problem)s)"
        )
    return text % {"problem": error}


def _why_not(error: LockBusy | LockUnavailable) -> str:
    """Say why a lock was not taken."""
    if not isinstance(error, LockBusy):
        return str(error)
    left = _("without end") if error.remaining is None else duration(error.remaining)
    text = _("held by %(holder)s; lease left: %(time)s")
    return text % {"holder": error.holder or _("somebody else"), "time": left}


def key_of(row: Model, template: KeyTemplate) -> str:
    """Return the key of the row's lock. Raises as :meth:`KeyTemplate.resolve`, or ValueError."""
    names = [name for name in template.roots if hasattr(row, name)]
    key = template.resolve({name: getattr(row, name) for name in names})
    meta_key(name_for(key_prefix(), key))
    return key


def rows_by_key(
    rows: Iterable[Model], template: KeyTemplate, skipped: list[str]
) -> dict[str, list[Model]]:
    """Return the rows of each key, which rows may share; add rows without a key to ``skipped``."""
    found: dict[str, list[Model]] = {}
    for row in rows:
        try:
            key = key_of(row, template)
        except (MissingValue, TypeError, ValueError) as error:
            skipped.append(f"{row} ({error})")
        else:
            found.setdefault(key, []).append(row)
    return found


def _unchanged(
    queryset: QuerySet[Any], template: KeyTemplate, keys: dict[Any, str], skipped: list[str]
) -> QuerySet[Any] | None:
    """Return the rows of ``keys`` whose key did not change before their locks were taken."""
    locked: set[Any] = set()
    now = rows_by_key(queryset.filter(pk__in=keys), template, skipped)
    for key, rows in now.items():
        for row in rows:
            if keys[row.pk] == key:
                locked.add(row.pk)
            else:
                skipped.append(_("%(row)s (it changed meanwhile)") % {"row": row})
    return queryset.filter(pk__in=locked) if locked else None


def named(texts: Sequence[str]) -> str:
    """Return the first of ``texts``, and how many more there are."""
    first = "; ".join(texts[:_NAMED])
    more = len(texts) - _NAMED
    if more <= 0:
        return first
    rest = ngettext("and %(count)d more", "and %(count)d more", more) % {"count": more}
    return f"{first}; {rest}"


def tell_skipped(modeladmin: ModelAdmin[Any], request: HttpRequest, skipped: list[str]) -> None:
    """Show a message that names the skipped rows, if there are any."""
    if not skipped:
        return
    text = ngettext(
        "%(count)d %(name)s was skipped: %(rows)s",
        "%(count)d %(name)s were skipped: %(rows)s",
        len(skipped),
    ) % {
        "count": len(skipped),
        "name": model_ngettext(modeladmin.opts, len(skipped)),
        "rows": named(skipped),
    }
    modeladmin.message_user(request, text, messages.WARNING)


@register(Tags.admin)
def check_locks(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """W003: a model has what its templates name. E011: the cache of its locks can hold them."""
    found: list[CheckMessage] = []
    for modeladmin, template, using in _locked():
        label, kind = modeladmin.opts.label, type(modeladmin)
        for root in sorted(template.roots):
            if not hasattr(modeladmin.model, root):
                text = f"The key template {template.text!r} takes <{root}> from {label}, "
                text += "which has no such attribute."
                found.append(message("W003", text, "Rows without it are skipped.", kind))
        found += unusable_caches(f"{label} ({template.text!r})", using, kind)
    return found


def _locked() -> Iterator[tuple[Any, KeyTemplate, Any]]:
    """Yield each admin with locks, its key template, and its cache alias or None."""
    for site in all_sites:
        for modeladmin in site._registry.values():
            actions: list[Any] = [
                getattr(modeladmin, action, None) if isinstance(action, str) else action
                for action in modeladmin.actions or ()
            ]
            # A LockedAdminMixin has a template itself.
            for locked in (modeladmin, *actions):
                template = getattr(locked, "_lock_template", None)
                if isinstance(template, KeyTemplate):
                    yield modeladmin, template, locked.lock_using
