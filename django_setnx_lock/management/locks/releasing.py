"""``manage.py locks release`` and ``ask-to-stop``: what is done to a holder by its fingerprint."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.core.management.base import CommandError, OutputWrapper
from django.db import DatabaseError

from django_setnx_lock.core.errors import LockUnavailable, LockUnsupported
from django_setnx_lock.core.inspection import LockInfo, Outcome
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


def release(options: dict[str, Any], out: OutputWrapper, err: OutputWrapper) -> None:
    """Take a lock from its holder, if the answer is yes. Raises CommandError when it was not."""
    user = None if options["user"] is None else _user_called(options["user"])
    wanted, troubles = _wanted(options, err, "nothing was released")
    if not options["yes"]:
        _ask(wanted, err)
    are_released = True
    for one in wanted:
        outcome, text = _release(one, options["reason"], user)
        if outcome is None:
            troubles.append(text)
            text = f"It is not known whether {_place(one)} was released: look at it again."
        are_released = are_released and outcome is Outcome.RELEASED
        _tell(f"{_whom(one)}\n{text}" if options["yes"] else text, out, err)
    raise_if_away(troubles)
    if not are_released:
        raise CommandError(f"{options['key']!r} was not released", returncode=NOT_HELD)


def ask_to_stop(options: dict[str, Any], out: OutputWrapper, err: OutputWrapper) -> None:
    """Ask the holder of a lock to stop. Raises CommandError when nobody was asked."""
    user = None if options["user"] is None else _user_called(options["user"])
    wanted, troubles = _wanted(options, err, "nobody was asked to stop")
    are_asked = True
    for one in wanted:
        outcome, text = _ask_to_stop(one, options["reason"], user)
        if outcome is None:
            troubles.append(text)
            text = f"It is not known whether the holder of {_place(one)} was asked: look again."
        are_asked = are_asked and outcome is Outcome.ASKED
        _tell(f"{_whom(one)}\n{text}", out, err)
    raise_if_away(troubles)
    if not are_asked:
        message = f"the holder of {options['key']!r} was not asked to stop"
        raise CommandError(message, returncode=NOT_HELD)


def _wanted(
    options: dict[str, Any], err: OutputWrapper, nothing: str
) -> tuple[list[Found], list[str]]:
    """Return what is held by whom it is meant, in each cache, and what is wrong.

    Raises CommandError, with ``nothing`` that was done, if it is nowhere.
    """
    found, troubles = look_at(options)
    held = [one for one in found if Said(one.info).is_held]
    wanted = []
    for one in held:
        if info := _held_by(options["fingerprint"], one.info):
            wanted.append(Found(one.using, info))
        else:
            say(err, f"changed hands: {_whom(one)}")
    if not wanted:
        raise_if_away(troubles)
        problem = "changed hands" if held else "is held by nobody"
        raise CommandError(f"{options['key']!r} {problem}: {nothing}", returncode=NOT_HELD)
    return wanted, troubles


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


def _release(one: Found, reason: str, user: AbstractBaseUser | None) -> tuple[Outcome | None, str]:
    """Take the lock from the holder that was seen, and from no other; say what came of it.

    The outcome is None when it is not known. ``user``: under whose name the admin's log has it.
    """
    by = _by()
    try:
        outcome = inspector(one.using).force_release(
            one.info.name, one.info.fingerprint, by=by, reason=reason
        )
    except LockUnavailable as error:
        return None, trouble(error)
    if outcome is Outcome.CHANGED_HANDS:
        return outcome, f"{_place(one)} changed hands: nothing was released."
    if outcome is not Outcome.RELEASED:
        return outcome, f"{_place(one)} is held by nobody any more: nothing was released."
    text = printable(f"Released {_place(one)} from {Said(one.info).holder}.")
    if user and not _logged(one, _release_entry(one, reason, by), user):
        text += f"\n{_NOT_LOGGED}"
    return outcome, text


def _ask_to_stop(
    one: Found, reason: str, user: AbstractBaseUser | None
) -> tuple[Outcome | None, str]:
    """Ask the holder that was seen, and no other; say what came of it. As :func:`_release`."""
    by = _by()
    try:
        outcome = inspector(one.using).ask_to_stop(
            one.info.name, one.info.fingerprint, by=by, reason=reason
        )
    except LockUnsupported as error:
        raise CommandError(str(error), returncode=NOT_HELD) from error
    except LockUnavailable as error:
        return None, trouble(error)
    if outcome is Outcome.CHANGED_HANDS:
        return outcome, f"{_place(one)} changed hands: nobody was asked to stop."
    if outcome is Outcome.FREE:
        return outcome, f"{_place(one)} is held by nobody any more: nobody was asked to stop."
    whom = printable(Said(one.info).holder)
    if outcome is Outcome.ASKED_BEFORE:
        return outcome, f"The holder of {_place(one)}, {whom}, was asked before."
    text = f"Asked the holder of {_place(one)} to stop: {whom}."
    if user and not _logged(one, _stop_entry(one, reason, by), user):
        text += f"\n{_NOT_LOGGED}"
    return outcome, text


def _by() -> str:
    return f"{user_name()}@{socket.gethostname()}"


# The admin is imported late: not every project has it.


def _release_entry(one: Found, reason: str, by: str) -> str:
    from django_setnx_lock.admin.release import release_text

    return release_text(Said(one.info), reason, _how("release", one, by))


def _stop_entry(one: Found, reason: str, by: str) -> str:
    from django_setnx_lock.admin.release import stop_text

    return stop_text(Said(one.info), reason, _how("ask-to-stop", one, by))


def _how(command: str, one: Found, by: str) -> str:
    return f"By manage.py locks {command}, as {plain(by)}, in the cache {one.using!r}."


def _logged(one: Found, entry: str, user: AbstractBaseUser) -> bool:
    from django_setnx_lock.admin.release import lock_of, log_releases

    return log_releases(user, [(lock_of(one.info), entry)])
