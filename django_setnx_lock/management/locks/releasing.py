"""``manage.py locks release`` and ``ask-to-stop``: what is done to a holder."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.conf import SETTING, get_config
from django_setnx_lock.core.errors import LockUnavailable, LockUnsupported
from django_setnx_lock.descriptions import problem_in_short
from django_setnx_lock.interventions import RELEASE, Intervention, result
from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import printable, say, user_name, write

from .listing import NOT_HELD, Found, one_lock, raise_if_away


def intervene(
    what: Intervention, options: dict[str, Any], out: OutputWrapper, err: OutputWrapper
) -> None:
    """Do it to each holder that the options mean; before a release, ask about each.

    Raises CommandError when it was not done to one of them.
    """
    is_release, reason = what is RELEASE, options["reason"]
    if is_release and get_config()["REQUIRE_REASON"] and not reason.strip():
        message = f"give a --reason: {SETTING}['REQUIRE_REASON'] of the project wants one"
        raise CommandError(message, returncode=statuses.USAGE)
    wanted, troubles = _wanted(what, options, err)
    is_asked = is_release and not options["yes"]
    if is_asked:
        wanted = _chosen(wanted, err)
    elif is_release:
        _refuse_several(wanted, options, err)
    is_done, by = True, f"{user_name()}@{socket.gethostname()}"
    for one in wanted:
        outcome, whom = None, f"{_place(one)}, {one.said.holder}"
        text = result(None, whom)
        try:
            outcome = what.carry_out(one.info, using=one.using, by=by, reason=reason)
            text = result(outcome, whom)
        except LockUnsupported as error:
            text = str(error)
        except LockUnavailable as error:
            troubles.append(problem_in_short(error))
        is_done = is_done and outcome is what.done
        # No trouble in writing makes it undone.
        try:
            write(out, "\n".join(map(printable, [text] if is_asked else [_whom(one), text])))
        except CommandError as error:
            say(err, str(error))
        except BrokenPipeError:
            pass
    raise_if_away(troubles)
    if not is_done:
        message = f"{options['key']!r} was not {what.done.value}"
        raise CommandError(message, returncode=NOT_HELD)


def _wanted(
    what: Intervention, options: dict[str, Any], err: OutputWrapper
) -> tuple[list[Found], list[str]]:
    """Return each holder that the options mean, in each cache, and what is wrong.

    Raises CommandError if there is none.
    """
    found, troubles = one_lock(options)
    held = [
        Found(one.using, replace(share.info, waiting=one.info.waiting, waiters=one.info.waiters))
        for one in found
        for share in one.said.holders
    ]
    wanted = [one for one in held if options["fingerprint"] in (None, one.info.fingerprint)]
    problem = "changed hands" if held else "is held by nobody"
    for one in () if wanted else held:
        say(err, f"changed hands: {_whom(one)}")
    if wanted and options["state"]:
        wanted = [one for one in wanted if one.info.state.slug == options["state"]]
        problem = f"has no holder in the state {options['state']}"
    if not wanted:
        raise_if_away(troubles)
        message = f"{options['key']!r} {problem}, so it was not {what.done.value}"
        raise CommandError(message, returncode=NOT_HELD)
    return wanted, troubles


def _refuse_several(wanted: Sequence[Found], options: dict[str, Any], err: OutputWrapper) -> None:
    """Raise CommandError for several holders of one lock that nothing but the key names."""
    is_named = options["fingerprint"] or options["state"]
    if not is_named and len({one.using for one in wanted}) < len(wanted):
        for one in wanted:
            say(err, f"{_whom(one)}; fingerprint: {one.info.fingerprint}")
        message = "several hold it: name one with --fingerprint, or those in a state with --state"
        raise CommandError(message, returncode=statuses.USAGE)


def _chosen(wanted: Sequence[Found], err: OutputWrapper) -> list[Found]:
    """Return those of ``wanted`` that are to be released. Raises CommandError if none is."""
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        message = "there is no terminal to ask on: give --yes if it is to be released"
        raise CommandError(message, returncode=statuses.USAGE)
    chosen = []
    try:
        for one in wanted:
            # On stderr: stdout may lead elsewhere.
            question = "Release it? Its holder is not stopped by that. [y/N] "
            err.write(f"{printable(_whom(one))}\n{question}", lambda plain: plain, ending="")
            err.flush()
            if sys.stdin.readline().strip().lower() in {"y", "yes"}:
                chosen.append(one)
    except KeyboardInterrupt:
        chosen.clear()
        err.write("")
    if not chosen:
        raise CommandError("nothing was released", returncode=NOT_HELD)
    return chosen


def _place(one: Found) -> str:
    return f"{one.info.key!r} in the cache {one.using!r}"


def _whom(one: Found) -> str:
    """Say who holds a lock, in which state, for how long, who waits and when it frees itself."""
    said = one.said
    held = f"{_place(one)} is held by {said.holder}: {said.state}, for {said.held_for}"
    return f"{held}; {said.summary}"
