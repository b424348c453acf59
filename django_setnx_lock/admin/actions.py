"""``@locked_action``: a ModelAdmin action that runs under the lock of each selected row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import messages
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..core import protocol
from ..core.batch import release_each, take_each
from ..core.errors import LockError, LockLost, LockUnavailable
from ..core.keys import lock_keys, name_for
from ..core.keytemplate import KeyTemplate, MissingValue
from ..locks import key_prefix, lock
from ..transactions import checked_release

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest, HttpResponseBase

    from ..transactions import Release

    Action = Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponseBase | None]

_Action = TypeVar("_Action", bound="Action")

# How many rows a message names before it only counts them.
_NAMED = 10


class _Attributes(Mapping[str, Any]):
    """The attributes of an object, for a key template to look names up in."""

    def __init__(self, row: Model) -> None:
        self._row = row

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self._row, name)
        except AttributeError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(dir(self._row))

    def __len__(self) -> int:
        return len(dir(self._row))


def locked_action(
    template: str,
    *,
    timeout: float | None = None,
    min_hold: float | None = None,
    using: str | None = None,
    note: str = "",
    release: Release | None = None,
) -> Callable[[_Action], _Action]:
    """Run a ModelAdmin action under the lock of each selected object.

    ``template``: the key, its ``<names>`` taken from the object: ``"order:<pk>"``.
    ``timeout``: the lease in seconds (None: the setting ``TIMEOUT``), which is renewed while
    the action runs if the setting ``RENEW`` says so. ``min_hold``: for how many seconds from the
    grant on nobody else gets them, however soon the action is done (None: none). ``using``: the
    cache alias (None: the setting ``CACHE``). ``note``: shown to operators beside the action's
    name. ``release``: ``commit`` to hold them until the transaction has ended, where the action
    runs in one, ``exit`` not to (None: the setting ``RELEASE``).

    All locks are taken in one round trip, without waiting. The action gets a queryset of the
    rows whose lock was free; a message names the others and who holds them. When Redis
    cannot be reached nothing is done, and a message says so. Raises ValueError or TypeError
    at decoration for a malformed template or a bad time.
    """
    parsed = KeyTemplate(template)
    if timeout is not None:
        protocol.milliseconds(timeout, "timeout")
    protocol.least_hold(min_hold)
    checked_release(release)

    def decorate(action: _Action) -> _Action:
        @wraps(action)
        def locked(
            modeladmin: ModelAdmin[Any], request: HttpRequest, queryset: QuerySet[Any]
        ) -> HttpResponseBase | None:
            skipped: list[str] = []
            rows_of = rows_by_key(queryset, parsed, skipped)
            locks = [
                lock(
                    key,
                    timeout=timeout,
                    min_hold=min_hold,
                    using=using,
                    label=f"action {modeladmin.opts.label_lower}.{action.__name__}",
                    user=request.user.get_username(),
                    note=note,
                    release=release,
                )
                for key in rows_of
            ]
            try:
                taken = take_each(locks)
            except LockUnavailable as error:
                modeladmin.message_user(request, _nothing_done(error), messages.ERROR)
                return None
            held = [one.held for one in taken if one.held]
            try:
                for one in taken:
                    if one.error:
                        skipped += [f"{row} ({one.error})" for row in rows_of[one.lock.key]]
                keys = {row.pk: one.key for one in held for row in rows_of[one.key]}
                rows = _unchanged(queryset, parsed, keys, skipped)
                if rows is None:
                    for unused in held:
                        unused.forgo_min_hold()
                response = action(modeladmin, request, rows) if rows is not None else None
            finally:
                _tell_failures(modeladmin, request, release_each(held))
            tell_skipped(modeladmin, request, skipped)
            return response

        locked.lock_template = parsed  # type: ignore[attr-defined]  # read by the system check
        return locked  # type: ignore[return-value]  # wraps() keeps the kind of callable

    return decorate


def rows_by_key(
    queryset: QuerySet[Any], template: KeyTemplate, skipped: list[str]
) -> dict[str, list[Model]]:
    """The rows under each key, which several may share; those without one go to ``skipped``."""
    found: dict[str, list[Model]] = {}
    for row in queryset:
        try:
            key = template.resolve(_Attributes(row))
            lock_keys(name_for(key_prefix(), key))
        except (MissingValue, TypeError, ValueError) as error:
            skipped.append(f"{row} ({error})")
        else:
            found.setdefault(key, []).append(row)
    return found


def _unchanged(
    queryset: QuerySet[Any], template: KeyTemplate, keys: dict[Any, str], skipped: list[str]
) -> QuerySet[Any] | None:
    """The rows of ``keys``, without those that had another key when their locks were ours."""
    locked: set[Any] = set()
    now = rows_by_key(queryset.filter(pk__in=keys), template, skipped)
    for key, rows in now.items():
        for row in rows:
            if keys[row.pk] == key:
                locked.add(row.pk)
            else:
                skipped.append(_("%(row)s (it changed meanwhile)") % {"row": row})
    return queryset.filter(pk__in=locked) if locked else None


def _nothing_done(error: LockUnavailable) -> str:
    return _("Nothing was done: %(problem)s") % {"problem": error}


def tell_skipped(modeladmin: ModelAdmin[Any], request: HttpRequest, skipped: list[str]) -> None:
    """Name the rows that nothing was done to, if there are any."""
    if not skipped:
        return
    named = "; ".join(skipped[:_NAMED])
    if len(skipped) > _NAMED:
        named += "; " + _("and %(count)d more") % {"count": len(skipped) - _NAMED}
    text = ngettext(
        "%(count)d %(name)s was skipped: %(rows)s",
        "%(count)d %(name)s were skipped: %(rows)s",
        len(skipped),
    ) % {
        "count": len(skipped),
        "name": modeladmin.opts.verbose_name
        if len(skipped) == 1
        else modeladmin.opts.verbose_name_plural,
        "rows": named,
    }
    modeladmin.message_user(request, text, messages.WARNING)


def _tell_failures(
    modeladmin: ModelAdmin[Any], request: HttpRequest, errors: list[LockError]
) -> None:
    for error in errors:
        if isinstance(error, LockLost):
            text = _("%(problem)s. Somebody else may have worked on it at the same time.")
        else:
            text = _("%(problem)s. It is let go when its lease ends.")
        problem = capfirst(str(error))
        modeladmin.message_user(request, text % {"problem": problem}, messages.ERROR)
