"""What an operator does to the holder of a lock: the texts, the form, and the admin's log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.db import router, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf import get_config
from ..core import Inspector
from ..core.lock_info import LockInfo, Outcome, State
from ..core.plain import plain
from ..descriptions import Said
from ..models import Lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from django.db.models import Model
    from django.utils.functional import Promise

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Intervention:
    """One thing that an operator can do to holders of locks, and the texts of its page.

    ``page``: the name of the page, which is part of its address. ``done``: the outcome if it was
    done. ``results``: the message for each outcome, in which ``%(whom)s`` names the holders.
    ``noted``: the entry in the log.
    """

    page: str
    title: str | Promise
    consequences: str | Promise
    confirmation: str | Promise
    unsure: str | Promise
    done: Outcome
    results: Mapping[Outcome, str | Promise]
    noted: str | Promise

    def form(self, data: Any) -> ReasonForm:
        """Return the form; the setting REQUIRE_REASON is about releases."""
        form = ReasonForm(data)
        form.fields["reason"].required = self is RELEASE and get_config()["REQUIRE_REASON"]
        return form

    def carry_out(
        self, look: Inspector, name: str, fingerprint: str, state: State, **why: str
    ) -> Outcome:
        """Do it to the one holder that was seen in that ``state``."""
        if self is ASK_TO_STOP:
            return look.ask_to_stop(name, fingerprint, **why)
        return look.force_release(name, fingerprint, state=state, **why)

    def entry(self, said: Said, reason: str) -> str:
        """Return the entry in the log."""
        text = str(self.noted) % {"holder": said.holder, "held_for": said.held_for}
        return f"{text} {_('Reason: %s') % plain(reason)}" if reason else text


RELEASE = Intervention(
    page="release",
    title=gettext_lazy("Force-release"),
    consequences=gettext_lazy(
        "These holders lose their locks, but their programs go on. A program notices when it next "
        "renews or checks its lock; until then two may work at once. Release only locks that you "
        "know to be stuck."
    ),
    confirmation=gettext_lazy("Yes, release"),
    unsure=gettext_lazy("It is not known whether this was released: %(whom)s. Look at it again."),
    done=Outcome.RELEASED,
    results={
        Outcome.RELEASED: gettext_lazy("Released, but not stopped: %(whom)s."),
        Outcome.CHANGED_HANDS: gettext_lazy(
            "Changed hands after you looked, so nothing was released: %(whom)s."
        ),
        Outcome.FREE: gettext_lazy("Not held any more, so nothing was released: %(whom)s."),
    },
    noted=gettext_lazy("Force-released from %(holder)s, held for %(held_for)s."),
)
ASK_TO_STOP = Intervention(
    page="stop",
    title=gettext_lazy("Ask to stop"),
    consequences=gettext_lazy(
        "These holders keep their locks, and hear of this at their next renewal or check. A "
        "command under with_lock is terminated then; other code stops only if it looks whether it "
        "was asked."
    ),
    confirmation=gettext_lazy("Yes, ask to stop"),
    unsure=gettext_lazy("It is not known whether this was asked to stop: %(whom)s. Look again."),
    done=Outcome.ASKED,
    results={
        Outcome.ASKED: gettext_lazy("Asked to stop: %(whom)s."),
        Outcome.ASKED_BEFORE: gettext_lazy("Asked to stop before: %(whom)s."),
        Outcome.CHANGED_HANDS: gettext_lazy(
            "Changed hands after you looked, so nobody was asked to stop: %(whom)s."
        ),
        Outcome.FREE: gettext_lazy("Not held any more, so nobody was asked to stop: %(whom)s."),
    },
    noted=gettext_lazy("Asked to stop: %(holder)s, who has held it for %(held_for)s."),
)
INTERVENTIONS = (ASK_TO_STOP, RELEASE)


def lock_of(info: LockInfo) -> Lock:
    """Return the object of the log entry. A database may refuse what Redis takes in a name."""
    return Lock(name=plain(info.name))


def log_interventions(
    user: AbstractBaseUser | AnonymousUser, noted: Sequence[tuple[Model, str]]
) -> None:
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
                log_interventions(user, some)
