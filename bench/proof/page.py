"""The page: docs/proof.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from bench.proof.evidence import LeftOut, Searched, Stormed
from bench.proof.promises import NOT_PROVEN, OF_OTHERS, PROMISES, Promise, by_promise
from bench.proof.store import Findings
from bench.proof.storms import CONTROL, LEASE, OURS, PROCESSES, ROWS, STORMS, LateRelease

Show = Callable[[Findings], str]
THEIRS = [row.title for row in ROWS if row.peer not in ("full", "nothing")]


@dataclass
class Evidence:
    """What one run of the command found; ``about``: where, when and with what it ran."""

    about: dict[str, Any]
    minutes: float
    seconds: float  # of a storm
    runs: list[Searched]
    rules: list[LeftOut]
    storms: list[Stormed]
    peers: dict[str, dict[str, Findings]]
    late: dict[str, LateRelease]
    mutants: dict[str, bool]

    def violations(self) -> list[str]:
        """Return what our own lock or the harness did that it must not do."""
        found = [f"model, {run.name}: {run.wrong}" for run in self.runs if run.wrong]
        found += [
            f"model: without a rule for {rule.breaks} nothing breaks"
            for rule in self.rules
            if not rule.is_caught
        ]
        found += [
            f"storm, {storm.name}: {storm.outcome}"
            for storm in self.storms
            if storm.outcome in ("failure", "error")
        ]
        for kind, findings in self.peers[OURS.title].items():
            if findings.stale or (findings.overlaps and not STORMS[kind].forgets):
                found.append(f"{STORMS[kind].about}: {findings}")
        found += [
            f"mutant not killed: {name}" for name, killed in self.mutants.items() if not killed
        ]
        if not all(findings.overlaps for findings in self.peers[CONTROL.title].values()):
            found.append("no overlap is found where there is no lock")
        if len(self.found_in()) < 2:
            found.append("an overlap or stale write is found in fewer than two other locks")
        return found

    def found_in(self) -> list[str]:
        """Return the other locks with an overlap or a stale write."""
        return [
            title
            for title in THEIRS
            if any(each.overlaps or each.stale for each in self.peers[title].values())
        ]


def table(head: Iterable[str], rows: Iterable[Iterable[str]], rule: str = "---") -> str:
    """Return a table; ``rule`` is that of all columns but the first."""
    first, *others = head
    lines = [[first, *others], ["---", *(rule for _ in others)], *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(evidence: Evidence) -> str:
    """Return the page."""
    sections = (
        heading(evidence),
        "## What is promised, and how it was tried",
        promised(evidence),
        "## What is *not* proven",
        "\n".join(f"- {each}" for each in NOT_PROVEN),
        "## The same storms on other locks",
        others(evidence),
        "## The storms of this lock",
        table(
            ("storm", "found", ""),
            [(one.name, one.found or "-", one.outcome) for one in evidence.storms],
        ),
        "## The model",
        model(evidence),
    )
    return "\n\n".join(sections) + "\n"


def heading(evidence: Evidence) -> str:
    about, violations = evidence.about, evidence.violations()
    packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items())
    killed = sum(evidence.mutants.values())
    sittings = " in several sittings" if about.get("resumed") else ""
    verdict = "**No violation was found.**"
    if violations:
        verdict = "**Violations:**\n\n" + "\n".join(f"- {each}" for each in violations)
    return f"""# Proof

`make proof` wrote this page: {about["when"]}, {evidence.minutes:.0f} minutes{sittings}, {
        about["machine"]
    },
load average {about["load_at_start"]:.0f} as it began; {about["server"]}, {about["python"]},
Django {about["django"]}, {packages}.

{verdict}

| tried | found |
| --- | --- |
| orders of events, in a model with the shipped scripts | {len(evidence.runs)} runs, {
        sum(run.states for run in evidence.runs):,} states |
| storms of this lock, in real processes with real servers | {len(evidence.storms)} |
| mutants: one rule taken out of the code, so that a named test must fail | {killed} of {
        len(evidence.mutants)
    } killed |
| other locks in which the same harness finds an overlap or a stale write, so it can fail | {
        len(evidence.found_in())
    } of {len(THEIRS)} |"""


def promised(evidence: Evidence) -> str:
    mutants = by_promise()
    rows = []
    # A promise that is tried by more comes later in the patterns, and first on the page.
    for promise in reversed(PROMISES):
        tried = [one for one in mutants[promise.text] if one.name in evidence.mutants]
        killed = sum(evidence.mutants[one.name] for one in tried)
        files = sorted({PurePosixPath(one.killed_by.partition("::")[0]).stem for one in tried})
        tests = f"{killed} of {len(tried)}: " + ", ".join(f"`{file}`" for file in files)
        rows.append(
            (
                f"[{promise.text}]({promise.page}.md)",
                searched(promise, evidence) or "-",
                injected(promise, evidence) or "-",
                tests if tried else "-",
            )
        )
    return table(("promise", "searched: model", "injected: storms", "mutants killed, by"), rows)


def searched(promise: Promise, evidence: Evidence) -> str:
    said = []
    if promise.properties:
        rules = sum(
            rule.is_caught and any(word in rule.breaks for word in promise.properties)
            for rule in evidence.rules
        )
        words = ", ".join(f"*{word}*" for word in promise.properties)
        said.append(f"{words} in each state; rules without which it breaks: {rules}")
    if promise.runs:
        runs = [run for run in evidence.runs if re.search(promise.runs, run.name)]
        whole = sum(run.depth == "all" for run in runs)
        states = sum(run.states for run in runs)
        said.append(f"{len(runs)} runs about it, {whole} complete, {states:,} states")
    return "; ".join(said)


def injected(promise: Promise, evidence: Evidence) -> str:
    if not promise.storms:
        return ""
    names = [storm.name for storm in evidence.storms if storm.found]
    names += [STORMS[kind].about for kind in evidence.peers[OURS.title]]
    found = [name for name in names if re.search(promise.storms, name)]
    return "; ".join(dict.fromkeys(found))


def others(evidence: Evidence) -> str:
    kinds = list(evidence.peers[OURS.title])
    about = "\n".join(f"- *{kind}*: {STORMS[kind].about}" for kind in kinds)
    figures: tuple[tuple[str, Show], ...] = (
        ("Overlaps, of so many grants", lambda one: f"{one.overlaps} of {one.grants}"),
        ("Stale writes: after one of a later holder", lambda one: f"{one.stale}"),
        ("Longest time without a holder, in seconds", lambda one: f"{one.stall:.2f}"),
        ("Errors raised, losses that were told among them", lambda one: f"{one.errors}"),
    )
    pieces = [
        f"{PROCESSES} processes contend for {evidence.seconds:g} seconds in each storm, with a"
        f" lease of {LEASE} seconds, through the `with` block that each library's docs show, with"
        " its automatic renewal where it has one. A holder is one from its grant to its last write."
        " One process always wants the lock.",
        about,
    ]
    for title, show in figures:
        rows = [
            (row.title, *(show(evidence.peers[row.title][kind]) for kind in kinds)) for row in ROWS
        ]
        pieces += [f"### {title}", table(("", *kinds), rows, "---:")]
    refused = sum(one.refused for one in evidence.peers[OURS.title].values())
    pieces.append(
        f"Writes of this lock's holders that the store refused by their fences: {refused}."
    )
    if evidence.late:
        rows = [
            (title, "**yes**" if late.frees_another else "no", f"`{late.said}`")
            for title, late in evidence.late.items()
        ]
        pieces += [
            "### A release after the lease, without renewal",
            table(("", "frees the next holder's lock", "raises"), rows),
        ]
    pieces += [
        "### What the others do not promise",
        "None of them has a fence. Beside that, by their docs:",
        table(("", "does not promise"), OF_OTHERS.items()),
    ]
    return "\n\n".join(pieces)


def model(evidence: Evidence) -> str:
    caught = sum(rule.is_caught for rule in evidence.rules)
    rows: Iterable[tuple[str, ...]] = [
        (run.name, run.about, f"{run.states:,}", run.wrong or run.depth) for run in evidence.runs
    ]
    return (
        "Each run searches every order of events, with the shipped scripts, for a limited time."
        f" Without any one of {len(evidence.rules)} rules a property breaks: found for {caught}."
        "\n\n" + table(("run", "what goes wrong in it", "states", "searched"), rows)
    )
