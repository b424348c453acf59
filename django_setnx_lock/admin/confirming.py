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

from .. import history
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
    from django.db.models import Model
    from django.http import HttpRequest

_SALT = "django_setnx_lock.admin"
# So many holders are asked about at once: a form may have only so many fields.
_MOST = 500
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


class Seen(NamedTuple):
    """A holder as the question showed it, and the primary key of the row that was selected."""

    name: str
    fingerprint: str
    state: str
    row: str = ""


@dataclass(kw_only=True, slots=True)
class Target:
    """A holder as it is now, and the row that was selected, if one was."""

    lock: LockPresenter
    row: Model | None = None
    is_chosen: bool = True
    number: int = 0

    @property
    def seen(self) -> Seen:
        info, pk = self.lock.info, "" if self.row is None else str(self.row.pk)
        return Seen(info.name, info.fingerprint, info.state.value, pk)


def holders_of(info: LockInfo, state: str = "") -> list[LockPresenter]:
    """Return each holder of a lock; of several only those in that ``state``, if any is."""
    holders = LockPresenter(info).holders
    return [holder for holder in holders if holder.info.state.slug == state] or holders


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
                names = {target.lock.info.name for target in targets} or about.get("names", set())
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

    def _form(self, data: Any = None) -> ReasonForm:
        form = ReasonForm(data)
        # The setting is about releases.
        is_required = self.what is RELEASE and get_config()["REQUIRE_REASON"]
        form.fields["reason"].required = is_required
        return form

    def _question(
        self, targets: Sequence[Target], *, seen: Sequence[Seen] = (), **about: Any
    ) -> TemplateResponse:
        """Return the page that asks.

        ``seen``: the targets as they were shown first. ``about``: what its context has besides.
        """
        site = self.modeladmin.admin_site
        self.request.current_app = site.name
        if not seen:
            # Those first that need attention; where some do, nobody else loses a lock by the way.
            targets = sorted(targets, key=lambda target: not target.lock.has_trouble)
            is_ill = targets[0].lock.has_trouble or about.get("is_again")
            for target in targets if is_ill and self.what is RELEASE else ():
                target.is_chosen = target.lock.has_trouble
        cut_at = _MOST if len(targets) > _MOST else 0
        targets = targets[:_MOST]
        for number, target in enumerate(targets):
            target.number = number
        shown = [list(one) for one in seen or [target.seen for target in targets]]
        context = {
            **site.each_context(self.request),
            "title": self.what.title,
            "opts": self.modeladmin.opts,
            "what": self.what,
            "targets": targets,
            "cut_at": cut_at,
            "form": self._form(),
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
            "seen": signing.dumps(shown, salt=_SALT, compress=True),
            **self.context,
            **about,
        }
        file = "admin/django_setnx_lock/confirmation.html"
        return TemplateResponse(self.request, file, context)

    def _answer(self, look: Inspector, seen: Sequence[Seen]) -> TemplateResponse | None:
        """Do it to the holders that were confirmed, and to no others; tell what came of it.

        Asks again where the form is not valid, and about holders that were gone, or did not renew,
        when they were shown, and live now. Raises LockUnavailable.
        """
        locks, targets = self._look_again(look, seen)
        boxes = self.request.POST.getlist("holder")
        chosen = [one for at, one in enumerate(seen) if len(seen) == 1 or str(at) in boxes]
        form = self._form(self.request.POST)
        if targets and not (form.is_valid() and chosen):
            for shown, known in targets.items():
                known.is_chosen = shown in chosen
            is_none = not chosen
            return self._question([*targets.values()], seen=[*targets], form=form, is_none=is_none)
        outcomes: dict[Outcome, list[str]] = {}
        revived: list[Seen] = []
        whom, why = (
            "",
            {"by": self.request.user.get_username(), "reason": form.data.get("reason", "").strip()},
        )
        try:
            for shown in chosen:
                lock, target = locks[shown.name], targets.get(shown)
                outcome = Outcome.CHANGED_HANDS if lock.is_held else Outcome.FREE
                whom = plain(lock.key)
                if target is not None:
                    whom = f"{target.lock.key}, {target.lock.holder}"
                    try:
                        outcome = self.what.carry_out(
                            target.lock.info, using=self.using, state=State(shown.state), **why
                        )
                    except LockUnsupported as error:
                        problem = {"problem": plain(str(error))}
                        self._tell(_("This cannot be done: %(problem)s") % problem)
                        continue
                    if outcome is self.what.done:
                        self._log(target, why["reason"])
                if outcome is Outcome.REVIVED:
                    revived.append(shown)
                else:
                    outcomes.setdefault(outcome, []).append(whom)
        except LockUnavailable:
            self._tell(result(None, whom))
            raise
        finally:
            history.flush()
            for outcome, names in outcomes.items():
                level = messages.SUCCESS if outcome is self.what.done else messages.WARNING
                self._tell(result(outcome, named(names)), level)
        living = [*self._look_again(look, revived)[1].values()] if revived else []
        return self._question(living, is_again=True) if living else None

    def _look_again(
        self, look: Inspector, seen: Sequence[Seen]
    ) -> tuple[dict[str, LockInfo], dict[Seen, Target]]:
        """Return the locks by name, and of the holders that were seen those that still hold them.

        What is about a row that the user may not see any more is left out.
        """
        rows = self.rows_of({shown.row for shown in seen}) if self.rows_of else {}
        locks = {lock.name: lock for lock in look.get_each(list({shown.name for shown in seen}))}
        holders = {
            (name, holder.info.fingerprint): holder
            for name, lock in locks.items()
            for holder in LockPresenter(lock).holders
        }
        return locks, {
            shown: Target(lock=holder, row=rows.get(shown.row))
            for shown in seen
            if (holder := holders.get(shown[:2])) and (shown.row in rows or not self.rows_of)
        }

    def _log(self, target: Target, reason: str) -> None:
        """Write to the admin's log what was done; what that refuses, to ours."""
        from django.contrib.admin.models import LogEntry

        entry = self.what.entry(target.lock, reason)
        # A database may refuse what Redis takes in a name.
        entries: list[tuple[Model, str]] = [(Lock(name=plain(target.lock.info.name)), entry)]
        if target.row is not None:
            text = _("The lock %(key)s: %(entry)s") % {"key": target.lock.key, "entry": entry}
            entries.append((target.row, text))
        for obj, text in entries:
            try:
                # A statement that fails must not break a transaction of the request's.
                with transaction.atomic(using=router.db_for_write(LogEntry)):
                    self.modeladmin.log_change(self.request, obj, text)
            except Exception:
                by = self.request.user.get_username()
                logger.exception(
                    "the admin's log did not take what %r did to %r: %s", by, str(obj), text
                )
