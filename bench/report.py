"""The results as a Markdown table and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import (
    capacity,
    contended,
    footprint,
    idle,
    many,
    pool,
    solo,
    takeover,
    tasks,
    transaction,
)
from bench.bars import judge
from bench.peers import PEERS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Results = dict[str, Any]


class Column(NamedTuple):
    title: str
    figure: str
    form: str = ".2f"


TABLES: dict[str, tuple[str, tuple[Column, ...]]] = {
    "solo": (
        solo.TITLE,
        (
            Column("median µs", "new_us", ".0f"),
            Column("p99 µs", "new_p99_us", ".0f"),
            Column("to redis-py", "new_ratio"),
            Column("median µs, object kept", "kept_us", ".0f"),
            Column("to redis-py, object kept", "kept_ratio"),
        ),
    ),
    "contended": (
        contended.TITLE,
        (
            Column("hand-over p50 ms", "handover_p50_ms"),
            Column("p99 ms", "handover_p99_ms", ".1f"),
            Column("total / ideal", "total_over_ideal"),
            Column("most overtaken", "most_overtaken", ".0f"),
            Column("by arrival", "most_overtaken_by_arrival", ".0f"),
            Column("longest wait s", "longest_wait_s"),
            Column("requests / turn", "requests_per_turn"),
            Column("server µs / turn", "server_cpu_us_per_turn", ".0f"),
            Column("turns", "turns", ".0f"),
            Column("overlaps", "overlaps", ".0f"),
            Column("lost updates", "lost_updates", ".0f"),
        ),
    ),
    "idle": (
        idle.TITLE,
        (
            Column("requests / s", "requests_per_s", ".1f"),
            Column("of them by waiters", "waiters_requests_per_s", ".1f"),
            Column("CPU of the waiters %", "waiters_cpu_percent", ".1f"),
            Column("threads", "threads", ".0f"),
        ),
    ),
    "takeover": (
        takeover.TITLE,
        (
            Column("median ms after its end", "median_ms", ".0f"),
            Column("worst ms", "worst_ms", ".0f"),
            Column("too early", "early", ".0f"),
            Column("never", "failures", ".0f"),
        ),
    ),
    "many": (
        many.TITLE,
        (
            Column("threads", "threads", ".0f"),
            Column("requests / cycle", "requests_per_cycle", ".1f"),
            Column("CPU ms / cycle", "cpu_ms_per_cycle", ".0f"),
            Column("CPU %", "cpu_percent", ".1f"),
            Column("server CPU %", "server_cpu_percent", ".1f"),
            Column("memory MB", "rss_mb", ".0f"),
            Column("lost", "lost", ".0f"),
        ),
    ),
    "pool": (
        pool.TITLE,
        (
            Column("release p50 ms", "release_p50_ms", ".1f"),
            Column("release p99 ms", "release_p99_ms", ".1f"),
            Column("renewal p50 ms", "renewal_p50_ms", ".1f"),
            Column("renewal p99 ms", "renewal_p99_ms", ".1f"),
            Column("turns", "turns", ".0f"),
            Column("overlaps", "overlaps", ".0f"),
        ),
    ),
    "transaction": (
        transaction.TITLE,
        (
            Column("s / 1,000", "commit_s_per_1000"),
            Column("s / 1,000, until_commit=False", "exit_s_per_1000"),
            Column("to until_commit=False", "to_exit"),
            Column("last to first 1,000", "last_to_first"),
            Column("of it the commit s", "commit_s"),
            Column("locks", "turns", ".0f"),
            Column("overlaps", "overlaps", ".0f"),
        ),
    ),
    "tasks": (
        tasks.TITLE,
        (
            Column("hand-over p50 ms", "handover_p50_ms"),
            Column("p99 ms", "handover_p99_ms", ".1f"),
            Column("tasks that wait", "crowd", ".0f"),
            *(
                Column(f"{locks}: {title}", f"{kind}_{figure}", form)
                for kind, locks in (("one", "1 lock"), ("each", "a lock each"))
                for title, figure, form in (
                    ("queued in s", "queued_s", ".2f"),
                    ("connections", "connections", ".0f"),
                    ("while they come", "most_connections", ".0f"),
                    ("bytes / waiter", "bytes_per_waiter", ".0f"),
                    ("p50 ms", "handover_p50_ms", ".2f"),
                    ("p99 ms", "handover_p99_ms", ".1f"),
                    ("still waiting", "late", ".0f"),
                )
            ),
            Column("turns", "turns", ".0f"),
            Column("overlaps", "overlaps", ".0f"),
        ),
    ),
    "footprint": (
        footprint.TITLE,
        (
            Column("of each", "times", ".0f"),
            Column("keys after cycles of one name", "keys_after_cycles", ".0f"),
            Column("keys of busy answers", "keys_of_busy", ".0f"),
            Column("keys / name", "keys_per_name", ".2f"),
            Column("bytes / name", "bytes_per_name", ".0f"),
            Column("keys / held lock", "keys_per_held", ".2f"),
            Column("bytes / held lock", "bytes_per_held", ".0f"),
            Column("keys 61 s later", "keys_later", ".0f"),
            Column("overlaps", "overlaps", ".0f"),
        ),
    ),
    "capacity": (
        capacity.TITLE,
        (
            *(
                Column(f"cycles / s, processes: {count}", f"cycles_per_s_{count}", ".0f")
                for count in capacity.PROCESSES
            ),
            Column("server CPU %, 8", "server_busy_percent_8", ".0f"),
            Column("server µs / cycle, 1", "server_us_1", ".0f"),
            *(
                Column(f"names: {count:,}", f"server_us_{count}_names", ".0f")
                for count in capacity.NAMES
            ),
            Column("to redis-py", "server_ratio"),
            Column("turns / s, 10 waiters", "turns_per_s_10_waiters", ".0f"),
            Column("server µs / turn", "server_us_10_waiters", ".0f"),
            Column("turns / s, 1,000 waiters", "turns_per_s_1000_waiters", ".0f"),
            Column("server µs / turn", "server_us_1000_waiters", ".0f"),
            Column("connections", "connections_1000_waiters", ".0f"),
            Column("bytes / waiter", "bytes_per_waiter_1000_waiters", ".0f"),
            Column("turns", "turns", ".0f"),
            Column("overlaps", "overlaps", ".0f"),
        ),
    ),
}


def markdown(results: Results) -> str:
    """Return the whole page: what ran, the bars, a table for each part."""
    parts: Results = results["parts"]
    pieces = [heading(results)]
    if verdicts := judge(parts):
        rows = [(bar.what, bar.bar, bar.seen, "met" if bar.met else "missed") for bar in verdicts]
        pieces += ["## Bars", table(("figure", "bar", "this run", ""), rows)]
    pieces += [section(name, parts[name]) for name in TABLES if name in parts]
    return "\n\n".join(pieces) + "\n"


def heading(results: Results) -> str:
    versions = {PEERS[name].package: number for name, number in results["versions"].items()}
    named = ", ".join(f"{package} {number or 'missing'}" for package, number in versions.items())
    return (
        f"# Locks side by side{', quick run' if results['quick'] else ''}\n\n"
        f"{results['when']}, {results['machine']} (load {results['load_at_start']:.1f} at the "
        f"start), {results['python']}, {results['server']} over a {results['transport']}. "
        f"Django {results['django']}, {named}; "
        f"{'with' if results['hiredis'] else 'without'} hiredis."
    )


def section(name: str, part: Results) -> str:
    title, columns = TABLES[name]
    rows: list[tuple[str, ...]] = []
    notes = []
    for peer in PEERS:
        if peer not in part:
            continue
        said = part[peer]
        if "failed" in said:
            notes.append(f"{PEERS[peer].title} failed: {flat(said['failed'])}")
        else:
            cells = (cell(said["figures"].get(column.figure), column.form) for column in columns)
            rows.append((PEERS[peer].title, *cells))
    head = ("", *(column.title for column in columns))
    return "\n\n".join([f"## {title}", table(head, rows), *notes])


def cell(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *map(list, rows)])


def flat(text: str) -> str:
    """Return ``text`` on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:197] + "..."


def problems(results: Results, ours: Iterable[str]) -> list[str]:
    """Return what makes the run void, in words."""
    found = []
    for name, part in results["parts"].items():
        for peer in ours:
            said = part.get(peer, {})
            if "failed" in said:
                found.append(f"{name}: {PEERS[peer].title} failed: {flat(said['failed'])}")
            wrong = {
                what: said.get("figures", {}).get(what) or 0
                for what in ("overlaps", "lost_updates", "early", "failures", "lost")
            }
            if any(wrong.values()):
                found.append(f"{name}: {PEERS[peer].title} was wrong: {wrong}")
        control = part.get("nothing")
        if control is not None and not control.get("figures", {}).get("overlaps"):
            found.append(
                f"{name}: without a lock no overlap was found, so its counts prove nothing"
            )
    return found


def write_json(results: Results, path: Path) -> None:
    path.write_text(json.dumps(results, indent=1) + "\n")
