"""``manage.py locks release``, ``extend``, …: what is done to a holder by its fingerprint."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.core.management.base import CommandError, OutputWrapper
from django.db import DatabaseError

from django_setnx_lock.conf import SETTING, get_config
from django_setnx_lock.core.errors import LockUnavailable, LockUnsupported
from django_setnx_lock.core.inspection import LockInfo, Outcome, State
from django_setnx_lock.core.plain import plain
from django_setnx_lock.descriptions import Said
from django_setnx_lock.locks import inspector
from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import printable, user_name

from .listing import NOT_HELD, Found, look_at, raise_if_away, trouble
from .printing import say, write

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser

_NOT_LOGGED = "The admin's log did not take it: see the log of the project."


@dataclass(frozen=True, kw_only=True, slots=True)
class _Intervention:
    """What a subcommand does to a holder, and its texts, in which ``place`` is the lock.

    ``carry_out``: does it by an Inspector; ``done``: the outcome then. ``told``: what is said of
    each other outcome. ``name``: that of the same in the admin. ``of_nobody``: whether it is for a
    lock whose lease is over.
    """

    command: str
    name: str
    carry_out: Callable[..., Outcome]
    done: Outcome
    nothing: str
    success: str
    unsure: str
    failure: str
    told: Mapping[Outcome, str] = field(default_factory=dict)
    of_nobody: bool = False

    def is_possible(self, said: Said) -> bool:
        """Return whether there is somebody to do it to."""
        return said.can_be_dismissed if self.of_nobody else said.is_held

    def text(self, outcome: Outcome, place: str, whom: str) -> str:
        """Say what came of it."""
        text = {
            self.done: self.success,
            Outcome.CHANGED_HANDS: f"{{place}} changed hands: {self.nothing}.",
            Outcome.FREE: f"{{place}} is held by nobody any more: {self.nothing}.",
            **self.told,
        }[outcome]
        return text.format(place=place, whom=whom)


_RELEASE = _Intervention(
    command="release",
    name="RELEASE",
    carry_out=lambda look, *seen, **why: look.force_release(*seen, **why),
    done=Outcome.RELEASED,
    nothing="nothing was released",
    success="Released {place} from {whom}.",
    unsure="It is not known whether {place} was released: look at it again.",
    failure="{key!r} was not released",
)
_ASK_TO_STOP = _Intervention(
    command="ask-to-stop",
    name="ASK_TO_STOP",
    carry_out=lambda look, *seen, **why: look.ask_to_stop(*seen, **why),
    done=Outcome.ASKED,
    nothing="nobody was asked to stop",
    success="Asked the holder of {place} to stop: {whom}.",
    unsure="It is not known whether the holder of {place} was asked: look again.",
    failure="the holder of {key!r} was not asked to stop",
    told={Outcome.ASKED_BEFORE: "The holder of {place}, {whom}, was asked before."},
)
_EXTEND = _Intervention(
    command="extend",
    name="EXTEND",
    carry_out=lambda look, *seen, **why: look.extend(*seen, **why),
    done=Outcome.EXTENDED,
    nothing="nothing was extended",
    success="Extended {place} for {whom}, who hears of it at its next renewal or check.",
    unsure="It is not known whether {place} was extended: look at it again.",
    failure="{key!r} was not extended",
)
_DISMISS = _Intervention(
    command="dismiss",
    name="DISMISS",
    carry_out=lambda look, *seen, **why: look.dismiss(*seen, **why),
    done=Outcome.DISMISSED,
    nothing="nothing was dismissed",
    success="Dismissed {place}, whose last holder was {whom}.",
    unsure="It is not known whether {place} was dismissed: look at it again.",
    failure="{key!r} was not dismissed",
    told={Outcome.FREE: "{place} is shown no longer anyway."},
    of_nobody=True,
)


def release(options: dict[str, Any], out: OutputWrapper, err: OutputWrapper) -> None:
    """Take a lock from its holder, if the answer is yes. Raises CommandError when it was not.

    A dry run only says from whom.
    """
    if options["dry_run"]:
        _say_from_whom(options, out, err)
        return
    if get_config()["REQUIRE_REASON"] and not options["reason"].strip():
        message = f"give a --reason: {SETTING}['REQUIRE_REASON'] of the project wants one"
        raise CommandError(message, returncode=statuses.USAGE)
    _intervene(_RELEASE, options, out, err, asks=not options["yes"])


def ask_to_stop(options: dict[str, Any], out: OutputWrapper, err: OutputWrapper) -> None:
    """Ask the holder of a lock to stop. Raises CommandError when nobody was asked."""
    _intervene(_ASK_TO_STOP, options, out, err, asks=False)


def extend(options: dict[str, Any], out: OutputWrapper, err: OutputWrapper) -> None:
    """Give the holder of a lock more time. Raises CommandError when it was not given."""
    _intervene(_EXTEND, options, out, err, asks=False, seconds=options["minutes"] * 60)


def dismiss(options: dict[str, Any], out: OutputWrapper, err: OutputWrapper) -> None:
    """Forget whose lease is over. Raises CommandError when nobody was forgotten."""
    _intervene(_DISMISS, options, out, err, asks=False)


def _say_from_whom(options: dict[str, Any], out: OutputWrapper, err: OutputWrapper) -> None:
    """Say what a release would take, and how to take just that. Raises CommandError if nothing."""
    wanted, troubles = _wanted(_RELEASE, options, err)
    for one in wanted:
        seen = f"it would be released with --fingerprint {one.info.fingerprint}"
        write(out, f"{_whom(one)}\nDry run: {seen}")
    raise_if_away(troubles)


def _intervene(
    what: _Intervention,
    options: dict[str, Any],
    out: OutputWrapper,
    err: OutputWrapper,
    *,
    asks: bool,
    **more: Any,
) -> None:
    given = {"reason": options["reason"], **more}
    user = None if options["user"] is None else _user_called(options["user"])
    wanted, troubles = _wanted(what, options, err)
    if asks:
        _ask(wanted, err)
    is_done = True
    for one in wanted:
        place, is_this = _place(one), False
        try:
            look, seen = inspector(one.using), (one.info.name, one.info.fingerprint)
            outcome = what.carry_out(look, *seen, by=_by(), **given)
        except LockUnsupported as error:
            text = printable(str(error))
        except LockUnavailable as error:
            troubles.append(trouble(error))
            text = what.unsure.format(place=place)
        else:
            is_this = outcome is what.done
            text = what.text(outcome, place, printable(Said(one.info).holder))
        if is_this and user and not _logged(what, one, given, user):
            text += f"\n{_NOT_LOGGED}"
        is_done = is_done and is_this
        _tell(text if asks else f"{_whom(one)}\n{text}", out, err)
    raise_if_away(troubles)
    if not is_done:
        raise CommandError(what.failure.format(key=options["key"]), returncode=NOT_HELD)


def _wanted(
    what: _Intervention, options: dict[str, Any], err: OutputWrapper
) -> tuple[list[Found], list[str]]:
    """Return what is held by whom it is meant, in each cache, and what is wrong.

    Raises CommandError if it is nowhere.
    """
    found, troubles = look_at(options)
    held = [one for one in found if what.is_possible(Said(one.info))]
    wanted = []
    for one in held:
        if info := _held_by(options["fingerprint"], one.info):
            wanted.append(Found(one.using, info))
        else:
            say(err, f"changed hands: {_whom(one)}")
    if not wanted:
        raise_if_away(troubles)
        message = f"{options['key']!r} {_problem(what, found, held)}: {what.nothing}"
        raise CommandError(message, returncode=NOT_HELD)
    return wanted, troubles


def _problem(what: _Intervention, found: Sequence[Found], held: Sequence[Found]) -> str:
    """Say why there is nobody to do it to."""
    if held:
        return "changed hands"
    if what.of_nobody:
        return "has no lease that is over"
    is_over = any(one.info.state is State.OVER for one in found)
    return f"is held by nobody{' (its lease is over: locks dismiss)' if is_over else ''}"


def _tell(text: str, out: OutputWrapper, err: OutputWrapper) -> None:
    """Write what was done; no trouble in writing makes it undone."""
    try:
        write(out, text)
    except BrokenPipeError:
        pass
    except CommandError as error:
        say(err, str(error))


def _held_by(fingerprint: str | None, info: LockInfo) -> LockInfo | None:
    """Return what is to be released; None if others hold it than ``fingerprint`` stands for."""
    if fingerprint is None or info.fingerprint == fingerprint:
        return info
    shares = (share for share in info.shares if share.fingerprint == fingerprint)
    return next((info.of_one(share) for share in shares), None)


def _place(one: Found) -> str:
    return printable(f"{one.info.key!r} in the cache {one.using!r}")


def _whom(one: Found) -> str:
    """Say who holds a lock, for how long, and for how much longer."""
    said = Said(one.info)
    if said.can_be_dismissed:
        return printable(f"{_place(one)} was held by {said.holder}; lease left: {said.lease_left}")
    # Many may share it: here each is named, not the first few.
    whom = ", ".join(row.holder for row in said.shares) or said.holder
    times = f"for {said.held_for}; lease left: {said.lease_left}"
    return printable(f"{_place(one)} is held by {whom}, {times}")


def _user_called(name: str) -> AbstractBaseUser:
    """Return the user for the admin's log. Raises CommandError."""
    if not apps.is_installed("django.contrib.admin"):
        raise CommandError(
            "--user writes to the admin's log, and django.contrib.admin is not in INSTALLED_APPS",
            returncode=statuses.USAGE,
        )
    try:
        user: AbstractBaseUser = get_user_model()._default_manager.get_by_natural_key(name)
    except (ObjectDoesNotExist, ValidationError, ValueError) as error:
        raise CommandError(f"there is no user {name!r}", returncode=statuses.USAGE) from error
    except DatabaseError as error:
        message = f"the user {name!r} cannot be looked up: {error}"
        raise CommandError(message, returncode=statuses.UNAVAILABLE) from error
    return user


def _ask(wanted: Sequence[Found], err: OutputWrapper) -> None:
    """Return if ``wanted`` are to be released. Raises CommandError when not, or if unsaid."""
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        message = "there is no terminal to ask on: give --yes if it is to be released"
        raise CommandError(message, returncode=statuses.USAGE)
    # On stderr: stdout may lead elsewhere.
    question = "Release it? Its holder is not stopped by that. [y/N] "
    err.write("\n".join([*map(_whom, wanted), question]), lambda plain: plain, ending="")
    err.flush()
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = ""
        err.write("")
    if answer.strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was released", returncode=NOT_HELD)


def _by() -> str:
    return f"{user_name()}@{socket.gethostname()}"


def _logged(what: _Intervention, one: Found, given: dict[str, Any], user: AbstractBaseUser) -> bool:
    # Late: not every project has the admin.
    from django_setnx_lock.admin import interventions

    how = f"By manage.py locks {what.command}, as {plain(_by())}, in the cache {one.using!r}."
    entry = getattr(interventions, what.name).entry(Said(one.info), how=how, **given)
    return interventions.log_interventions(user, [(interventions.lock_of(one.info), entry)])
