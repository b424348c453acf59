"""``manage.py locks check``: a plugin for Nagios, Icinga and all that run their plugins.

Its statuses are theirs. A Redis that is away is CRITICAL, as the guidelines for plugins have it:
UNKNOWN is for a check that could not be carried out as it was asked for.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.core.lock_info import LockInfo
from django_setnx_lock.descriptions import Said, duration
from django_setnx_lock.management.wording import printable

from .listing import gather, looks_everywhere
from .printing import write

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


@dataclass(frozen=True, slots=True)
class Problem:
    """A condition that a lock meets, in words (``what``), and how bad that is."""

    level: Level
    what: str


@dataclass(frozen=True, slots=True)
class Ill:
    """A lock that meets at least one condition."""

    using: str
    info: LockInfo
    problems: Sequence[Problem]

    @property
    def level(self) -> Level:
        return max(one.level for one in self.problems)


@dataclass(kw_only=True, slots=True)
class Report:
    """What was seen in all caches."""

    locks: int = 0
    waiting: int = 0
    oldest_hold: float = 0.0
    longest_wait: float = 0.0
    states: Counter[str] = field(default_factory=Counter)
    ill: list[Ill] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    @property
    def level(self) -> Level:
        if self.troubles:
            return Level.CRITICAL
        return max((one.level for one in self.ill), default=Level.OK)

    def add(self, using: str, info: LockInfo, options: dict[str, Any]) -> None:
        """Add a lock that was seen in the cache ``using``."""
        self.locks += 1
        self.waiting += info.waiting
        self.oldest_hold = max(self.oldest_hold, info.longest_hold)
        self.longest_wait = max(self.longest_wait, info.longest_wait or 0.0)
        self.states.update(state.slug for state in info.states)
        if problems := list(_problems(info, options)):
            self.ill.append(Ill(using, info, problems))


def check(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write whether any lock meets a condition. Raises CheckFailed when it is so, or not known."""
    try:
        report = _examine(options)
    except ImproperlyConfigured as error:
        _end(Level.UNKNOWN, [str(error)], options, out)
    except Exception as error:
        # A traceback would end with the status of a warning.
        if options["traceback"]:
            raise
        _end(Level.UNKNOWN, [f"{type(error).__name__}: {error}"], options, out)
    else:
        lines = [_summary(report), *_details(report)]
        _end(report.level, lines, options, out, report)


def _end(
    level: Level,
    lines: Sequence[str],
    options: dict[str, Any],
    out: OutputWrapper,
    report: Report | None = None,
) -> None:
    first = _safe(f"LOCKS {level.name} - {lines[0]}")
    figures = f" | {_figures(report, options)}" if report and not report.troubles else ""
    try:
        write(out, "\n".join([first + figures, *map(_safe, lines[1:])]))
    except CommandError as error:
        raise CommandError(str(error), returncode=Level.UNKNOWN) from error
    if level is not Level.OK:
        raise CheckFailed(first, returncode=int(level))


def _examine(options: dict[str, Any]) -> Report:
    report = Report()
    everything = looks_everywhere(
        options, *(options["state"] or ()), *(options["warn_state"] or ())
    )
    found, report.troubles = gather(
        options["using"], lambda look: look.all(search=options["search"], everything=everything)
    )
    for one in found:
        report.add(one.using, one.info, options)
    # The worst first: of these those with most conditions, then the oldest.
    report.ill.sort(
        key=lambda one: (-one.level, -len(one.problems), _since(one.info), one.info.key)
    )
    return report


def _since(info: LockInfo) -> float:
    """Return when the oldest holder got the lock. Locks are not all looked at in one moment."""
    return round(info.as_of - held, 3) if (held := info.longest_hold) else math.inf


def _problems(info: LockInfo, options: dict[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with a lock, each thing once, at the worse of its levels."""
    states = {state.slug for state in info.states}
    critical = states.intersection(options["state"] or ())
    for state in sorted(states.intersection(options["warn_state"] or ()) | critical):
        level = Level.CRITICAL if state in critical else Level.WARNING
        yield Problem(level, state.replace("-", " "))
    for what, value in (("held", info.longest_hold), ("waited for", info.longest_wait or 0.0)):
        name = "held" if what == "held" else "wait"
        for level, option in ((Level.CRITICAL, "max"), (Level.WARNING, "warn")):
            limit = options[f"{option}_{name}"]
            if limit is not None and value > limit:
                yield Problem(level, f"{what} more than {limit:g} s")
                break


def _summary(report: Report) -> str:
    """Say in one line what is wrong, the worst first; else how much was looked at."""
    seen = f"{report.locks:,} lock{'s' * (report.locks != 1)}, {report.waiting:,} waiting"
    if not report.troubles and not report.ill:
        return seen
    found = Counter(problem for one in report.ill for problem in one.problems)
    worst = sorted(found.items(), key=lambda item: (-item[0].level, -item[1], item[0].what))
    parts = [*report.troubles, *(f"{count:,} {problem.what}" for problem, count in worst)]
    if report.ill:
        names = ", ".join(_short(one.info.key, 60) for one in report.ill[:_FEW])
        more = len(report.ill) - _FEW
        parts[-1] += f" ({names}{f' and {more:,} more' if more > 0 else ''})"
    return f"{', '.join(parts)}; {seen}"


def _details(report: Report) -> Iterator[str]:
    several = len({one.using for one in report.ill}) > 1
    for one in report.ill[:_LINES]:
        where = f" in the cache {one.using}" if several else ""
        parts = [", ".join(problem.what for problem in one.problems)]
        if held := one.info.longest_hold:
            parts.append(f"held for {duration(held)}")
        if one.info.longest_wait is not None:
            parts.append(
                f"{one.info.waiting:,} waiting, the first for {duration(one.info.longest_wait)}"
            )
        if Said(one.info).is_held:
            parts.append(f"by {_short(Said(one.info).holder)}")
        yield f"{one.level.name} {_short(one.info.key)}{where}: {'; '.join(parts)}"
    if len(report.ill) > _LINES:
        yield f"and {len(report.ill) - _LINES:,} more: see manage.py locks list"


def _figures(report: Report, options: dict[str, Any]) -> str:
    """Return the performance data: label=value;warning;critical;least."""

    def limits(name: str) -> str:
        given = (options[f"warn_{name}"], options[f"max_{name}"])
        return ";".join("" if one is None else f"{one:.15g}" for one in given)

    figures = [
        f"locks={report.locks};;;0",
        f"waiting={report.waiting};;;0",
        f"oldest_hold={report.oldest_hold:.3f}s;{limits('held')};0",
        f"longest_wait={report.longest_wait:.3f}s;{limits('wait')};0",
    ]
    warned, critical = options["warn_state"] or (), options["state"] or ()
    for state in dict.fromkeys([*critical, *warned]):
        ends = f"{'0' * (state in warned)};{'0' * (state in critical)}"
        figures.append(f"{state.replace('-', '_')}={report.states[state]};{ends};0")
    return " ".join(figures)


def _safe(text: str) -> str:
    """Return ``text`` as one line, with ``|`` escaped: performance data would begin there."""
    return printable(text).replace("|", "\\x7c")


def _short(text: str, longest: int = _LONGEST) -> str:
    found = printable(text)
    return found if len(found) <= longest else f"{found[: longest - 3]}..."
