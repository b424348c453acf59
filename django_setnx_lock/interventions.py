"""What an operator does to the holder of a lock, and what page and command say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .core.holder import plain
from .core.inspection.lock_info import LockInfo, Outcome, State
from .descriptions import LockPresenter
from .history import note_force
from .locks import inspector

if TYPE_CHECKING:
    from django.utils.functional import Promise


@dataclass(frozen=True, kw_only=True, slots=True)
class Intervention:
    """One thing that an operator can do to holders of locks, and its texts.

    ``page``: the name of its page, which is part of the address. ``done``: the outcome if it was
    done. ``noted``: the entry in the admin's log.
    """

    page: str
    title: str | Promise
    consequences: str | Promise
    confirmation: str | Promise
    done: Outcome
    noted: str | Promise

    def carry_out(
        self, holder: LockInfo, *, using: str | None, state: State | None = None, **why: str
    ) -> Outcome:
        """Do it to one ``holder``, who was seen in that ``state`` (None: as ``holder`` has it).

        ``why``: ``by`` and ``reason``. Raises LockUnavailable, and LockUnsupported where nobody
        would hear it.
        """
        look, seen = inspector(using), (holder.name, holder.fingerprint)
        if self is ASK_TO_STOP:
            return look.ask_to_stop(*seen, **why)
        outcome = look.force_release(*seen, state=state or holder.state, **why)
        if outcome is Outcome.RELEASED:
            note_force(using, holder, **why)
        return outcome

    def entry(self, said: LockPresenter, reason: str) -> str:
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
    done=Outcome.RELEASED,
    noted=gettext_lazy("Force-released from %(holder)s, held for %(held_for)s."),
)
ASK_TO_STOP = Intervention(
    page="stop",
    title=gettext_lazy("Ask to stop"),
    consequences=gettext_lazy(
        "These holders still hold their locks, and get the request at their next renewal or check. "
        "A "
        "command under with_lock is terminated then; other code stops only if it looks whether it "
        "was asked."
    ),
    confirmation=gettext_lazy("Yes, ask to stop"),
    done=Outcome.ASKED,
    noted=gettext_lazy("Asked to stop: %(holder)s, who has held it for %(held_for)s."),
)
INTERVENTIONS = (ASK_TO_STOP, RELEASE)

# What is said of each outcome; of None where the reply was lost.
_RESULTS: dict[Outcome | None, str | Promise] = {
    Outcome.RELEASED: gettext_lazy("Released, but not stopped: %(whom)s."),
    Outcome.ASKED: gettext_lazy("Asked to stop: %(whom)s."),
    Outcome.ASKED_BEFORE: gettext_lazy("Asked to stop before: %(whom)s."),
    Outcome.CHANGED_HANDS: gettext_lazy(
        "Changed hands after you looked, so nothing was done: %(whom)s."
    ),
    Outcome.REVIVED: gettext_lazy("Renewed after you looked, so nothing was done: %(whom)s."),
    Outcome.FREE: gettext_lazy("Not held any more, so nothing was done: %(whom)s."),
    None: gettext_lazy("It is not known whether this was done: %(whom)s. Look again."),
}


def result(outcome: Outcome | None, whom: str) -> str:
    """Say what came of it for the holders named in ``whom``; of None, that nobody knows."""
    return str(_RESULTS[outcome]) % {"whom": whom}
