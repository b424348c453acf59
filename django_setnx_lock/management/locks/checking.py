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

from django_setnx_lock.core.holder import plain
from django_setnx_lock.core.inspection.lock_info import LockInfo
from django_setnx_lock.descriptions import duration
from django_setnx_lock.management.wording import printable, write

from .listing import Found, every_lock

# How many locks have a line of their own, and how many are named in the first one.
_LINES, _FEW = 20, 3
# No text of others takes more of a line, and no key of the first one.
_LONGEST, _SHORT = 200, 60


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
    def level(self) -> Level:
        return max(level for level, _ in self.problems)

    @property
    def urgency(self) -> tuple[Any, ...]:
        """The worst first; of these those with most conditions, then the oldest."""
        info = self.found.info
        # Locks are not all looked at in one moment.
        since = round(info.as_of - held, 3) if (held := info.longest_hold) else math.inf
        return -self.level, -len(self.problems), since, info.key


def check(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write whether any lock meets a condition. Raises CheckFailed when it is so, or not known."""
    level, figures = Level.UNKNOWN, ""
    try:
        found, troubles = every_lock(options, *options["state"], *options["warn_state"])
    except ImproperlyConfigured as error:
        lines = [str(error)]
    except Exception as error:
        # A traceback would end with the status of a warning.
        if options["traceback"]:
            raise
        lines = [f"{type(error).__name__}: {error}"]
    else:
        each = (Ill(one, list(_problems(one.info, options))) for one in found)
        ills = sorted((ill for ill in each if ill.problems), key=lambda ill: ill.urgency)
        level = Level.CRITICAL if troubles else max([ill.level for ill in ills], default=Level.OK)
        lines = [_summary(found, ills, troubles), *_details(ills)]
        figures = "" if troubles else f" | {' '.join(_figures(found, options))}"
    first = _safe(f"LOCKS {level.name} - {lines[0]}")
    try:
        write(out, "\n".join([first + figures, *map(_safe, lines[1:])]))
    except CommandError as error:
        raise CommandError(str(error), returncode=Level.UNKNOWN) from error
    if level is not Level.OK:
        raise CheckFailed(first, returncode=int(level))


def _problems(info: LockInfo, options: dict[str, Any]) -> Iterator[tuple[Level, str]]:
    """Yield what is wrong with a lock, each thing once, at the worse of its levels."""
    states = {state.slug for state in info.states}
    critical = states.intersection(options["state"])
    for state in sorted(states.intersection(options["warn_state"]) | critical):
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
    met = Counter(problem for ill in ills for problem in ill.problems)
    worst = sorted(met.items(), key=lambda item: (-item[0][0], -item[1], item[0][1]))
    parts = [*troubles, *(f"{count:,} {what}" for (_, what), count in worst)]
    if ills:
        names = ", ".join(plain(ill.found.info.key, _SHORT) for ill in ills[:_FEW])
        more = len(ills) - _FEW
        parts[-1] += f" ({names}{f' and {more:,} more' if more > 0 else ''})"
    return f"{', '.join(parts)}; {seen}" if parts else seen


def _details(ills: Sequence[Ill]) -> Iterator[str]:
    several = len({ill.found.using for ill in ills}) > 1
    for ill in ills[:_LINES]:
        (using, info), said = ill.found, ill.found.said
        parts = [", ".join(what for _, what in ill.problems)]
        if held := info.longest_hold:
            parts.append(f"held for {duration(held)}")
        parts.append(said.summary)
        if said.is_held:
            parts.append(f"by {plain(said.holder, _LONGEST)}")
        where = f" in the cache {using}" if several else ""
        yield f"{ill.level.name} {plain(info.key, _LONGEST)}{where}: {'; '.join(parts)}"
    if len(ills) > _LINES:
        yield f"and {len(ills) - _LINES:,} more: see manage.py locks list"


def _figures(found: Sequence[Found], options: dict[str, Any]) -> Iterator[str]:
    """Yield the performance data: label=value;warning;critical;least."""

    def limits(name: str) -> str:
        given = (options[f"warn_{name}"], options[f"max_{name}"])
        return ";".join("" if one is None else f"{one:.15g}" for one in given)

    infos = [one.info for one in found]
    yield f"locks={len(infos)};;;0"
    yield f"waiting={sum(info.waiting for info in infos)};;;0"
    oldest_hold = max([info.longest_hold for info in infos], default=0.0)
    yield f"oldest_hold={oldest_hold:.3f}s;{limits('held')};0"
    longest_wait = max([info.longest_wait or 0.0 for info in infos], default=0.0)
    yield f"longest_wait={longest_wait:.3f}s;{limits('wait')};0"
    counts = Counter(state.slug for info in infos for state in info.states)
    for state in dict.fromkeys([*options["state"], *options["warn_state"]]):
        ends = ["0" * (state in options[one]) for one in ("warn_state", "state")]
        yield f"{state.replace('-', '_')}={counts[state]};{';'.join(ends)};0"


def _safe(text: str) -> str:
    """Return ``text`` as one line, with ``|`` escaped: performance data would begin there."""
    return printable(text).replace("|", "\\x7c")
