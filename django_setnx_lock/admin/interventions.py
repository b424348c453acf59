"""What an operator does to the holder of a lock: the words, the form, and the entry in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.widgets import AdminIntegerFieldWidget, AdminTextInputWidget
from django.db import router, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf import get_config
from ..core.inspection import LONGEST_EXTENSION, LockInfo, Outcome, State
from ..core.plain import plain
from ..descriptions import Said, duration
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
        help_text=gettext_lazy(
            "Kept in the log. A holder that is asked to stop, or loses the lock, is told."
        ),
        required=False,
        max_length=200,
        widget=AdminTextInputWidget,
    )


class ReleaseReasonForm(ReasonForm):
    """Why locks are taken from their holders, which ``REQUIRE_REASON`` wants to be said."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = get_config()["REQUIRE_REASON"]


class ConfirmationForm(ReasonForm):
    """Which holder the operator saw, and why it is done."""

    fingerprint = forms.CharField(widget=forms.HiddenInput)

    def given(self) -> dict[str, Any]:
        """Return what else than the fingerprint was given, for the Inspector."""
        return {"reason": self.cleaned_data["reason"]}


class ReleaseForm(ReleaseReasonForm, ConfirmationForm):
    """From which holder the lock is taken, and why."""


class ExtendForm(ConfirmationForm):
    """Which holder gets more time, how much, and why."""

    field_order = ("minutes", "reason")
    minutes = forms.IntegerField(
        label=gettext_lazy("Minutes"),
        help_text=gettext_lazy("Added to what is left of the lease."),
        initial=10,
        min_value=1,
        max_value=LONGEST_EXTENSION,
        widget=AdminIntegerFieldWidget,
    )

    def given(self) -> dict[str, Any]:
        return {**super().given(), "seconds": self.cleaned_data["minutes"] * 60}


@dataclass(frozen=True, kw_only=True, slots=True)
class Intervention:
    """One thing that an operator can do to the holder of a lock, and the texts of its page.

    ``page``: the name of the page, which is part of its address. ``carry_out``: does it by an
    Inspector, and returns ``done`` then. ``told``: the message for each
    outcome. ``noted``: the entry in the log. Texts may contain ``%(key)s`` and ``%(holder)s``;
    ``noted`` has ``%(holder)s``, ``%(held_for)s``, and ``%(time)s`` if time was given. ``form``:
    what the operator fills in. ``of_nobody``: whether it is for a lock whose lease is over.
    """

    page: str
    title: str | Promise
    name: str | Promise
    question: str | Promise
    consequences: str | Promise
    confirmation: str | Promise
    unsure: str | Promise
    carry_out: Callable[..., Outcome]
    done: Outcome
    told: Mapping[Outcome, str | Promise]
    noted: str | Promise
    form: type[ConfirmationForm] = ConfirmationForm
    of_nobody: bool = False

    @property
    def is_harmless(self) -> bool:
        """Whether nothing is taken from anybody."""
        return self.done is not Outcome.RELEASED

    def refused_by(self, said: Said, fingerprint: str) -> Outcome | None:
        """Return why it cannot be done any more to the holder of that fingerprint, or None."""
        is_possible = said.info.state is State.OVER if self.of_nobody else said.is_held
        if not is_possible:
            return Outcome.CHANGED_HANDS if said.is_held else Outcome.FREE
        return None if said.info.fingerprint == fingerprint else Outcome.CHANGED_HANDS

    def entry(self, said: Said, reason: str, how: str = "", seconds: float | None = None) -> str:
        """Return the log entry. ``how``: a sentence, when it was not done by a page."""
        time = duration(seconds)
        text = str(self.noted) % {"holder": said.holder, "held_for": said.held_for, "time": time}
        why = _("Reason: %s") % plain(reason) if reason else ""
        return " ".join(part for part in (text, how, why) if part)


RELEASE = Intervention(
    page="release",
    title=gettext_lazy("Force-release lock"),
    name=gettext_lazy("Force-release"),
    question=gettext_lazy("Are you sure you want to take the lock “%(key)s” from %(holder)s?"),
    consequences=gettext_lazy(
        "The holder is not stopped. It learns of this when it next asks about its lock, and until "
        "then somebody else can take the lock: two could work at once. Release only what you know "
        "to be stuck."
    ),
    confirmation=gettext_lazy("Yes, release it"),
    unsure=gettext_lazy("It is not known whether the lock was released. Look at it again."),
    carry_out=lambda look, *seen, **why: look.force_release(*seen, **why),
    done=Outcome.RELEASED,
    told={
        Outcome.RELEASED: gettext_lazy(
            "The lock “%(key)s” was released from %(holder)s, which this did not stop."
        ),
        Outcome.CHANGED_HANDS: gettext_lazy(
            "The lock “%(key)s” changed hands after you looked: nothing was released. "
            "This is its holder now."
        ),
        Outcome.FREE: gettext_lazy(
            "Nobody holds the lock “%(key)s” any more: nothing was released."
        ),
    },
    noted=gettext_lazy("Force-released from %(holder)s, held for %(held_for)s."),
    form=ReleaseForm,
)
ASK_TO_STOP = Intervention(
    page="stop",
    title=gettext_lazy("Ask the holder to stop"),
    name=gettext_lazy("Ask to stop"),
    question=gettext_lazy(
        "Are you sure you want to ask %(holder)s, the holder of the lock “%(key)s”, to stop?"
    ),
    consequences=gettext_lazy(
        "The lock stays with its holder, who hears of this at its next renewal or check. A command "
        "under with_lock is terminated then; other code stops only if it looks whether it was "
        "asked."
    ),
    confirmation=gettext_lazy("Yes, ask it to stop"),
    unsure=gettext_lazy("It is not known whether the holder was asked. Look at the lock again."),
    carry_out=lambda look, *seen, **why: look.ask_to_stop(*seen, **why),
    done=Outcome.ASKED,
    told={
        Outcome.ASKED: gettext_lazy(
            "%(holder)s was asked to stop, and still holds the lock “%(key)s”."
        ),
        Outcome.ASKED_BEFORE: gettext_lazy(
            "%(holder)s was asked to stop before, and still holds the lock “%(key)s”."
        ),
        Outcome.CHANGED_HANDS: gettext_lazy(
            "The lock “%(key)s” changed hands after you looked: nobody was asked to stop. "
            "This is its holder now."
        ),
        Outcome.FREE: gettext_lazy(
            "Nobody holds the lock “%(key)s” any more: nobody was asked to stop."
        ),
    },
    noted=gettext_lazy("Asked to stop: %(holder)s, who has held it for %(held_for)s."),
)
EXTEND = Intervention(
    page="extend",
    title=gettext_lazy("Extend the lease"),
    name=gettext_lazy("Extend"),
    question=gettext_lazy(
        "How much more time is %(holder)s, the holder of the lock “%(key)s”, to have?"
    ),
    consequences=gettext_lazy(
        "Nobody else gets the lock in that time, even if its holder dies. Renewals do not shorten "
        "it. The holder hears of it at its next renewal or check: if neither comes before its "
        "lease ends, it takes the lock for lost then, and this does not change its mind."
    ),
    confirmation=gettext_lazy("Yes, extend it"),
    unsure=gettext_lazy("It is not known whether the lease was extended. Look at the lock again."),
    carry_out=lambda look, *seen, **why: look.extend(*seen, **why),
    done=Outcome.EXTENDED,
    told={
        Outcome.EXTENDED: gettext_lazy("The lease of the lock “%(key)s” was extended."),
        Outcome.CHANGED_HANDS: gettext_lazy(
            "The lock “%(key)s” changed hands after you looked: nothing was extended. "
            "This is its holder now."
        ),
        Outcome.FREE: gettext_lazy(
            "Nobody holds the lock “%(key)s” any more: nothing was extended."
        ),
    },
    noted=gettext_lazy("Extended by %(time)s for %(holder)s, who has held it for %(held_for)s."),
    form=ExtendForm,
)
DISMISS = Intervention(
    page="dismiss",
    title=gettext_lazy("Dismiss a lease that is over"),
    name=gettext_lazy("Dismiss"),
    question=gettext_lazy(
        "Are you sure you want to dismiss the lock “%(key)s”, whose last holder was %(holder)s?"
    ),
    consequences=gettext_lazy("Nobody holds it. It is shown no longer."),
    confirmation=gettext_lazy("Yes, dismiss it"),
    unsure=gettext_lazy("It is not known whether the lock was dismissed. Look at it again."),
    carry_out=lambda look, *seen, **why: look.dismiss(*seen, **why),
    done=Outcome.DISMISSED,
    told={
        Outcome.DISMISSED: gettext_lazy(
            "The lock “%(key)s”, whose last holder was %(holder)s, was dismissed."
        ),
        Outcome.CHANGED_HANDS: gettext_lazy(
            "Somebody has had the lock “%(key)s” since you looked: nothing was dismissed."
        ),
        Outcome.FREE: gettext_lazy("The lock “%(key)s” is shown no longer anyway."),
    },
    noted=gettext_lazy("Dismissed: the lease of %(holder)s was over."),
    of_nobody=True,
)
#: In the order of the harm they do.
INTERVENTIONS = (DISMISS, ASK_TO_STOP, EXTEND, RELEASE)


def lock_of(info: LockInfo) -> Lock:
    """Return the object of the log entry. A database may refuse what Redis takes in a name."""
    return Lock(name=plain(info.name))


def log_interventions(
    user: AbstractBaseUser | AnonymousUser, noted: Sequence[tuple[Model, str]]
) -> bool:
    """Write to the admin's log what was done; what that refuses, to ours. Return if it has all."""
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    if not noted:
        return True
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
        return False
    return True
