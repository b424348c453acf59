"""The question before something is done to holders of locks, and what comes of the answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import django
from django import forms
from django.contrib import messages
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.db import router, transaction
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf import get_config
from ..core import Inspector
from ..core.errors import LockUnavailable, LockUnsupported
from ..core.holder import plain
from ..core.inspection.lock_info import LockInfo, Outcome, State
from ..descriptions import LockPresenter, problem_in_short
from ..interventions import RELEASE, Intervention, result
from ..locks import inspector
from ..models import Lock
from .actions import named

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from django.db.models import Model
    from django.http import HttpRequest

_SALT = "django_setnx_lock.admin"
logger = logging.getLogger("django_setnx_lock.force_release")


class ReasonForm(forms.Form):
    """Why it is done."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        help_text=gettext_lazy("Kept in the log, and shown to the holder."),
        required=False,
        max_length=200,
        widget=AdminTextInputWidget,
    )


def _form(what: Intervention, data: Any = None) -> ReasonForm:
    """Return the form; the setting REQUIRE_REASON is about releases."""
    form = ReasonForm(data)
    form.fields["reason"].required = what is RELEASE and get_config()["REQUIRE_REASON"]
    return form


class Seen(NamedTuple):
    """A holder as the question showed it, and the primary key of the row that was selected."""

    name: str
    fingerprint: str
    state: str
    row: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A holder as it is now, and the row that was selected, if one was."""

    said: LockPresenter
    row: Model | None = None

    def as_seen(self) -> Seen:
        info, pk = self.said.info, "" if self.row is None else str(self.row.pk)
        return Seen(name=info.name, fingerprint=info.fingerprint, state=info.state.value, row=pk)


def holders_of(info: LockInfo, state: str = "") -> list[LockPresenter]:
    """Return each holder of a lock; of several only those in that ``state``, if any is."""
    said = LockPresenter(info)
    if not said.is_held:
        return []
    return (
        [share for share in said.shares if share.info.state.slug == state] or said.shares or [said]
    )


@dataclass(frozen=True)
class Confirmation:
    """The question of an operator's request, or the answer to it.

    ``what``: what is to be done. ``using``: the cache alias. ``context``: of the page. ``rows_of``:
    gives the rows of primary keys that this is about; None if it is about locks.
    """

    modeladmin: ModelAdmin[Any]
    request: HttpRequest
    what: Intervention
    using: str | None
    context: Mapping[str, Any]
    rows_of: Callable[[set[str]], Mapping[str, Model]] | None = None

    def run(
        self, choose: Callable[[Inspector], tuple[Sequence[Target], Mapping[str, Any]]]
    ) -> tuple[TemplateResponse | None, str]:
        """Ask about the holders of ``choose``, or do it once that is confirmed.

        Return the page that asks, if there is one, and where this is about locks the name of a lock
        that was the only one and still has a holder. ``choose``: returns the holders, and what is
        to be said of them.
        """
        try:
            look, page = inspector(self.using), None
            if self.request.POST.get("post"):
                found = signing.loads(self.request.POST.get("seen", ""), salt=_SALT)
                seen = [Seen(*entry) for entry in found]
                names = {shown.name for shown in seen}
                page = self._answer(look, seen)
            else:
                targets, about = choose(look)
                names = {target.said.info.name for target in targets} or about.get("names", set())
                if targets:
                    page = self._question(targets, **about)
                else:
                    text = _("This changed hands or is free since you looked: nothing was done.")
                    self._tell(text if about.get("changed") else _("Nobody holds a lock of these."))
            is_one = page is None and len(names) == 1 and not self.rows_of
            return page, names.pop() if is_one and look.get(*names).is_held else ""
        except signing.BadSignature:
            text = _("The confirmation was changed or is broken: nothing was done.")
        except (ImproperlyConfigured, LockUnavailable) as error:
            text = problem_in_short(error)
        self._tell(text, messages.ERROR)
        return None, ""

    def _tell(self, text: str, level: int = messages.WARNING) -> None:
        self.modeladmin.message_user(self.request, text, level)

    def _answer(self, look: Inspector, seen: Sequence[Seen]) -> TemplateResponse | None:
        """Do it to the holders that were confirmed, and to no others; tell what came of it.

        Asks again where the form is not valid, and about holders that were gone, or did not renew,
        when they were shown, and live now. Raises LockUnavailable.
        """
        rows = self.rows_of({shown.row for shown in seen}) if self.rows_of else {}
        seen = [shown for shown in seen if shown.row in rows or not self.rows_of]
        locks, targets = _look_again(look, seen, rows)
        form = _form(self.what, self.request.POST)
        if targets and not form.is_valid():
            return self._question(list(targets.values()), form=form, seen=_signed(seen))
        reason = form.data.get("reason", "").strip()
        why = {"by": self.request.user.get_username(), "reason": reason}
        results: dict[Outcome, list[str]] = {}
        noted: list[tuple[Model, str]] = []
        revived: list[Seen] = []
        whom = ""
        try:
            for shown in seen:
                target, info = targets.get(shown), locks[shown.name]
                whom = f"{target.said.key}, {target.said.holder}" if target else plain(info.key)
                outcome = Outcome.CHANGED_HANDS if info.is_held else Outcome.FREE
                if target:
                    try:
                        outcome = self.what.carry_out(
                            target.said.info, using=self.using, state=State(shown.state), **why
                        )
                    except LockUnsupported as error:
                        problem = {"problem": plain(str(error))}
                        self._tell(_("This cannot be done: %(problem)s") % problem)
                        continue
                    if outcome is self.what.done:
                        noted += _entries(self.what, target, reason)
                if outcome is Outcome.REVIVED:
                    revived.append(shown)
                else:
                    results.setdefault(outcome, []).append(whom)
        except LockUnavailable:
            self._tell(result(None, whom))
            raise
        finally:
            # All at once: thousands one by one take longer than their release.
            _log(self.request.user, noted)
            for outcome, holders in results.items():
                level = messages.SUCCESS if outcome is self.what.done else messages.WARNING
                self._tell(result(outcome, named(holders)), level)
        _locks, living = _look_again(look, revived, rows) if revived else ({}, {})
        return self._question(list(living.values()), is_again=True) if living else None

    def _question(self, targets: Sequence[Target], **about: Any) -> TemplateResponse:
        """Return the page that asks; ``about``: what its context has besides."""
        site = self.modeladmin.admin_site
        self.request.current_app = site.name
        context = {
            **site.each_context(self.request),
            "title": self.what.title,
            "opts": self.modeladmin.opts,
            "what": self.what,
            "targets": targets,
            "form": _form(self.what),
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
            "seen": _signed([target.as_seen() for target in targets]),
            **self.context,
            **about,
        }
        file = "admin/django_setnx_lock/confirmation.html"
        return TemplateResponse(self.request, file, context)


def _signed(seen: Sequence[Seen]) -> str:
    # In one field, as a form may have only so many: a row each would soon be too many.
    return signing.dumps([list(holder) for holder in seen], salt=_SALT, compress=True)


def _look_again(
    look: Inspector, seen: Sequence[Seen], rows: Mapping[str, Model]
) -> tuple[dict[str, LockInfo], dict[Seen, Target]]:
    """Return the locks by name, and of the holders that were seen those that still hold them."""
    locks = {lock.name: lock for lock in look.get_each(list({shown.name for shown in seen}))}
    holders = {
        (name, said.info.fingerprint): said
        for name, info in locks.items()
        for said in holders_of(info)
    }
    targets = {
        shown: Target(said=holders[shown.name, shown.fingerprint], row=rows.get(shown.row))
        for shown in seen
        if (shown.name, shown.fingerprint) in holders
    }
    return locks, targets


def _entries(what: Intervention, target: Target, reason: str) -> list[tuple[Model, str]]:
    entry = what.entry(target.said, reason)
    # A database may refuse what Redis takes in a name.
    found: list[tuple[Model, str]] = [(Lock(name=plain(target.said.info.name)), entry)]
    if target.row is not None:
        text = _("The lock %(key)s: %(entry)s") % {"key": target.said.key, "entry": entry}
        found.append((target.row, text))
    return found


def _log(user: AbstractBaseUser | AnonymousUser, noted: Sequence[tuple[Model, str]]) -> None:
    """Write to the admin's log what was done; what that refuses, to ours."""
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    if not noted:
        return
    kind_of = ContentType.objects.get_for_model
    try:
        entries = [
            LogEntry(
                user_id=user.pk,  # type: ignore[misc]  # who may release has one
                content_type_id=kind_of(obj, for_concrete_model=False).pk,
                object_id=obj.pk,
                object_repr=str(obj)[:200],
                action_flag=CHANGE,
                change_message=text,
            )
            for obj, text in noted
        ]
        # A statement that fails must not break a transaction of the request's.
        with transaction.atomic(using=router.db_for_write(LogEntry)):
            # Thousands at once are more than some databases take.
            LogEntry.objects.bulk_create(entries, batch_size=500)
    except Exception:
        if len(noted) == 1:
            ((obj, text),) = noted
            by = user.get_username()
            logger.exception(
                "the admin's log did not take what %r did to %r: %s", by, str(obj), text
            )
        else:
            # A refused entry must not cost the others theirs.
            half = len(noted) // 2
            for some in (noted[:half], noted[half:]):
                _log(user, some)
