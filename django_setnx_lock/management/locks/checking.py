"""``manage.py locks check``: a plugin for Nagios, Icinga and all that run their plugins.

Its statuses are theirs. A Redis that is away is CRITICAL, as the guidelines for plugins have it:
UNKNOWN is for a check that could not be carried out as it was asked for.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.core.inspection.lock_info import LockInfo
from django_setnx_lock.descriptions import LockPresenter, duration
from django_setnx_lock.management.wording import printable, write

from .listing import Found, every_lock

# How many locks have a line of their own, and how many are named in the first one.
_LINES, _FEW = 20, 3
# No text of others takes more of a line.
_LONGEST = 200


class Level(enum.IntEnum):
    """The statuses of a plugin."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class CheckFailed(CommandError):
    """Raised when a check was not OK, which stdout says already."""


class Ill(NamedTuple):
    """A lock that meets conditions: each in words, with how bad that is."""

    found: Found
    problems: Sequence[tuple[Level, str]]

    @property
    def info(self) -> LockInfo:
        return self.found.info

    @property
    def level(self) -> Level:
        return max(level for level, _what in self.problems)


def check(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write whether any lock meets a condition. Raises CheckFailed when it is so, or not known."""
    level, figures = Level.UNKNOWN, ""
    try:
        states = [*(options["state"] or ()), *(options["warn_state"] or ())]
        found, troubles = every_lock(options, *states)
        ills = _ills(found, options)
    except ImproperlyConfigured as error:
        lines = [str(error)]
    except Exception as error:
        # A traceback would end with the status of a warning.
        if options["traceback"]:
            raise
        lines = [f"{type(error).__name__}: {error}"]
    else:
        level = Level.CRITICAL if troubles else max([ill.level for ill in ills], default=Level.OK)
        lines = [_summary(found, ills, troubles), *_details(ills)]
        figures = "" if troubles else f" | {_figures(found, options)}"
    first = _safe(f"LOCKS {level.name} - {lines[0]}")
    try:
        write(out, "\n".join([first + figures, *map(_safe, lines[1:])]))
    except CommandError as error:
        raise CommandError(str(error), returncode=Level.UNKNOWN) from error
    if level is not Level.OK:
        raise CheckFailed(first, returncode=int(level))


def _ills(found: Sequence[Found], options: dict[str, Any]) -> list[Ill]:
    """Return the locks that meet a condition, the worst first.

    Of these those with most conditions, then the oldest.
    """
    ills = [Ill(one, met) for one in found if (met := list(_problems(one.info, options)))]
    return sorted(
        ills, key=lambda one: (-one.level, -len(one.problems), _since(one.info), one.info.key)
    )


def _since(info: LockInfo) -> float:
    """Return when the oldest holder got the lock. Locks are not all looked at in one moment."""
    return round(info.as_of - held, 3) if (held := info.longest_hold) else math.inf


def _problems(info: LockInfo, options: dict[str, Any]) -> Iterator[tuple[Level, str]]:
    """Yield what is wrong with a lock, each thing once, at the worse of its levels."""
    states = {state.slug for state in info.states}
    critical = states.intersection(options["state"] or ())
    for state in sorted(states.intersection(options["warn_state"] or ()) | critical):
        yield Level.CRITICAL if state in critical else Level.WARNING, state.replace("-", " ")
    for name, what, value in (
        ("held", "held", info.longest_hold),
        ("wait", "waited for", info.longest_wait or 0.0),
    ):
        for level, option in ((Level.CRITICAL, "max"), (Level.WARNING, "warn")):
            limit = options[f"{option}_{name}"]
            if limit is not None and value > limit:
                yield level, f"{what} more than {limit:g} s"
                break


def _summary(found: Sequence[Found], ills: Sequence[Ill], troubles: Sequence[str]) -> str:
    """Say in one line what is wrong, the worst first; else how much was looked at."""
    waiting = sum(one.info.waiting for one in found)
    seen = f"{len(found):,} lock{'s' * (len(found) != 1)}, {waiting:,} waiting"
    if not troubles and not ills:
        return seen
    met = Counter(problem for one in ills for problem in one.problems)
    worst = sorted(met.items(), key=lambda item: (-item[0][0], -item[1], item[0][1]))
    parts = [*troubles, *(f"{count:,} {what}" for (_level, what), count in worst)]
    if ills:
        names = ", ".join(_short(one.info.key, 60) for one in ills[:_FEW])
        more = len(ills) - _FEW
        parts[-1] += f" ({names}{f' and {more:,} more' if more > 0 else ''})"
    return f"{', '.join(parts)}; {seen}"


def _details(ills: Sequence[Ill]) -> Iterator[str]:
    several = len({one.found.using for one in ills}) > 1
    for one in ills[:_LINES]:
        info, where = one.info, f" in the cache {one.found.using}" if several else ""
        parts = [", ".join(what for _level, what in one.problems)]
        if held := info.longest_hold:
            parts.append(f"held for {duration(held)}")
        if info.longest_wait is not None:
            parts.append(f"{info.waiting:,} waiting, the first for {duration(info.longest_wait)}")
        if LockPresenter(info).is_held:
            parts.append(f"by {_short(LockPresenter(info).holder)}")
        yield f"{one.level.name} {_short(info.key)}{where}: {'; '.join(parts)}"
    if len(ills) > _LINES:
        yield f"and {len(ills) - _LINES:,} more: see manage.py locks list"


def _figures(found: Sequence[Found], options: dict[str, Any]) -> str:
    """Return the performance data: label=value;warning;critical;least."""

    def limits(name: str) -> str:
        given = (options[f"warn_{name}"], options[f"max_{name}"])
        return ";".join("" if one is None else f"{one:.15g}" for one in given)

    infos = [one.info for one in found]
    oldest_hold = max([info.longest_hold for info in infos], default=0.0)
    longest_wait = max([info.longest_wait or 0.0 for info in infos], default=0.0)
    figures = [
        f"locks={len(infos)};;;0",
        f"waiting={sum(info.waiting for info in infos)};;;0",
        f"oldest_hold={oldest_hold:.3f}s;{limits('held')};0",
        f"longest_wait={longest_wait:.3f}s;{limits('wait')};0",
    ]
    warned, critical = options["warn_state"] or (), options["state"] or ()
    counts = Counter(state.slug for info in infos for state in info.states)
    for state in dict.fromkeys([*critical, *warned]):
        ends = f"{'0' * (state in warned)};{'0' * (state in critical)}"
        figures.append(f"{state.replace('-', '_')}={counts[state]};{ends};0")
    return " ".join(figures)


def _safe(text: str) -> str:
    """Return ``text`` as one line, with ``|`` escaped: performance data would begin there."""
    return printable(text).replace("|", "\\x7c")


def _short(text: str, longest: int = _LONGEST) -> str:
    found = printable(text)
    return found if len(found) <= longest else f"{found[: longest - 3]}..."
