"""``manage.py locks release`` and ``ask-to-stop``: what is done to a holder."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.conf import SETTING, get_config
from django_setnx_lock.core.errors import LockUnavailable, LockUnsupported
from django_setnx_lock.core.lock_info import Outcome
from django_setnx_lock.descriptions import Said
from django_setnx_lock.locks import inspector
from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import printable, user_name

from .listing import NOT_HELD, Found, look_at, raise_if_away, trouble
from .printing import say, write


@dataclass(frozen=True, kw_only=True, slots=True)
class _Intervention:
    """What a subcommand does to a holder, and its texts, in which ``place`` is the lock.

    ``carry_out``: does it by an Inspector to the holder that was seen; ``done``: the outcome then.
    ``told``: what is said of each other outcome.
    """

    carry_out: Callable[..., Outcome]
    done: Outcome
    nothing: str
    success: str
    unsure: str
    failure: str
    told: Mapping[Outcome, str] = field(default_factory=dict)

    def text(self, outcome: Outcome, place: str, whom: str) -> str:
        """Say what came of it."""
        text = {
            self.done: self.success,
            Outcome.CHANGED_HANDS: f"{{place}} changed hands: {self.nothing}.",
            Outcome.FREE: f"{{place}} is held by nobody any more: {self.nothing}.",
            Outcome.REVIVED: f"{{whom}} has renewed {{place}} since you looked: {self.nothing}.",
            **self.told,
        }[outcome]
        return text.format(place=place, whom=whom)


_RELEASE = _Intervention(
    carry_out=lambda look, seen, **why: look.force_release(
        seen.name, seen.fingerprint, state=seen.state, **why
    ),
    done=Outcome.RELEASED,
    nothing="nothing was released",
    success="Released {place} from {whom}.",
    unsure="It is not known whether {place} was released: look at it again.",
    failure="{key!r} was not released",
)
_ASK_TO_STOP = _Intervention(
    carry_out=lambda look, seen, **why: look.ask_to_stop(seen.name, seen.fingerprint, **why),
    done=Outcome.ASKED,
    nothing="nobody was asked to stop",
    success="Asked the holder of {place} to stop: {whom}.",
    unsure="It is not known whether the holder of {place} was asked: look again.",
    failure="the holder of {key!r} was not asked to stop",
    told={Outcome.ASKED_BEFORE: "The holder of {place}, {whom}, was asked before."},
)


def release(options: dict[str, Any], out: OutputWrapper, err: OutputWrapper) -> None:
    """Take a lock from its holder, if the answer is yes. Raises CommandError when it was not.

    Several who hold it together are asked about one by one.
    """
    if get_config()["REQUIRE_REASON"] and not options["reason"].strip():
        message = f"give a --reason: {SETTING}['REQUIRE_REASON'] of the project wants one"
        raise CommandError(message, returncode=statuses.USAGE)
    wanted, troubles = _wanted(_RELEASE, options, err)
    if options["yes"]:
        _refuse_several(wanted, options, err)
    else:
        wanted = _chosen(wanted, err)
    _intervene(_RELEASE, wanted, troubles, options, out, err, is_shown=not options["yes"])


def ask_to_stop(options: dict[str, Any], out: OutputWrapper, err: OutputWrapper) -> None:
    """Ask the holders of a lock to stop. Raises CommandError when one was not asked."""
    wanted, troubles = _wanted(_ASK_TO_STOP, options, err)
    _intervene(_ASK_TO_STOP, wanted, troubles, options, out, err, is_shown=False)


def _intervene(
    what: _Intervention,
    wanted: Sequence[Found],
    troubles: list[str],
    options: dict[str, Any],
    out: OutputWrapper,
    err: OutputWrapper,
    *,
    is_shown: bool,
) -> None:
    """Do it to each holder. ``is_shown``: whether it was said already who they are."""
    is_done, reason = True, options["reason"]
    for one in wanted:
        place, is_this = _place(one), False
        try:
            outcome = what.carry_out(inspector(one.using), one.info, by=_by(), reason=reason)
        except LockUnsupported as error:
            text = printable(str(error))
        except LockUnavailable as error:
            troubles.append(trouble(error))
            text = what.unsure.format(place=place)
        else:
            is_this = outcome is what.done
            text = what.text(outcome, place, printable(Said(one.info).holder))
        is_done = is_done and is_this
        _tell(text if is_shown else f"{_whom(one)}\n{text}", out, err)
    raise_if_away(troubles)
    if not is_done:
        raise CommandError(what.failure.format(key=options["key"]), returncode=NOT_HELD)


def _wanted(
    what: _Intervention, options: dict[str, Any], err: OutputWrapper
) -> tuple[list[Found], list[str]]:
    """Return each holder that the options mean, in each cache, and what is wrong.

    Raises CommandError if there is none.
    """
    found, troubles = look_at(options)
    held = [holder for one in found if Said(one.info).is_held for holder in _holders_of(one)]
    wanted = [one for one in held if options["fingerprint"] in (None, one.info.fingerprint)]
    if held and not wanted:
        for one in held:
            say(err, f"changed hands: {_whom(one)}")
    problem = "changed hands" if held else "is held by nobody"
    if wanted and options["state"]:
        wanted = [one for one in wanted if one.info.state.slug == options["state"]]
        problem = f"has no holder in the state {options['state']}"
    if not wanted:
        raise_if_away(troubles)
        message = f"{options['key']!r} {problem}: {what.nothing}"
        raise CommandError(message, returncode=NOT_HELD)
    return wanted, troubles


def _holders_of(one: Found) -> list[Found]:
    """Return the lock once for each of those who hold it together."""
    return [Found(one.using, holder) for holder in one.info.holders]


def _refuse_several(wanted: Sequence[Found], options: dict[str, Any], err: OutputWrapper) -> None:
    """Raise CommandError for several holders of one lock that nothing but the key names."""
    if (
        options["fingerprint"]
        or options["state"]
        or len({one.using for one in wanted}) == len(wanted)
    ):
        return
    for one in wanted:
        say(err, f"{_whom(one)}; fingerprint: {one.info.fingerprint}")
    message = "several hold it: name one with --fingerprint, or those in a state with --state"
    raise CommandError(message, returncode=statuses.USAGE)


def _tell(text: str, out: OutputWrapper, err: OutputWrapper) -> None:
    """Write what was done; no trouble in writing makes it undone."""
    try:
        write(out, text)
    except BrokenPipeError:
        pass
    except CommandError as error:
        say(err, str(error))


def _place(one: Found) -> str:
    return printable(f"{one.info.key!r} in the cache {one.using!r}")


def _whom(one: Found) -> str:
    """Say who holds a lock, in which state, for how long, and for how much longer."""
    said = Said(one.info)
    times = f"for {said.held_for}; lease left: {said.lease_left}"
    return printable(f"{_place(one)} is held by {said.holder}: {said.state}, {times}")


def _chosen(wanted: Sequence[Found], err: OutputWrapper) -> list[Found]:
    """Return those of ``wanted`` that are to be released. Raises CommandError if none is."""
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        message = "there is no terminal to ask on: give --yes if it is to be released"
        raise CommandError(message, returncode=statuses.USAGE)
    chosen = []
    try:
        for one in wanted:
            # On stderr: stdout may lead elsewhere.
            question = f"{_whom(one)}\nRelease it? Its holder is not stopped by that. [y/N] "
            err.write(question, lambda plain: plain, ending="")
            err.flush()
            if sys.stdin.readline().strip().lower() in {"y", "yes"}:
                chosen.append(one)
    except KeyboardInterrupt:
        chosen = []
        err.write("")
    if not chosen:
        raise CommandError("nothing was released", returncode=NOT_HELD)
    return chosen


def _by() -> str:
    return f"{user_name()}@{socket.gethostname()}"
