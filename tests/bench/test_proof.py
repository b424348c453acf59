"""The proof: its harness finds what goes wrong without a lock, and its page names every promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.address import URL_VARIABLE
from bench.proof import evidence, page
from bench.proof.promises import PROMISES, by_promise
from bench.proof.store import Findings, StaleWrite, Store
from bench.proof.storms import CONTROL, OURS, ROWS, STORMS, run
from tests.servers import RealServer

ROOT = Path(__file__).parents[2]
CALM = Findings(grants=5, overlaps=0, stale=0, refused=0, errors=0, stall=0.1)
BROKEN = CALM._replace(overlaps=1, stale=1)


def found(**others: Any) -> page.Evidence:
    """What a run finds that goes as it should, with ``others`` instead."""
    about = {"when": "today", "machine": "a machine", "server": "Redis", "python": "CPython"}
    broken = [CONTROL.title, "redis-py", "sherlock"]
    peers = {row.title: {"calm": BROKEN if row.title in broken else CALM} for row in ROWS}
    facts: dict[str, Any] = {
        "about": {**about, "django": "5.2", "packages": {}, "load_at_start": 0.5},
        "minutes": 1,
        "seconds": 1,
        "runs": [evidence.Searched("plain", "nothing goes wrong", 10, "all", "")],
        "rules": [evidence.LeftOut("exclusive", is_caught=True)],
        "storms": [evidence.Stormed("killed and late holders", "9 stays, 0 overlaps", "passed")],
        "peers": peers,
        "late": {},
        "mutants": {mutant.name: True for each in by_promise().values() for mutant in each},
    }
    return page.Evidence(**{**facts, **others})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_where_there_is_no_lock_overlaps_and_stale_writes_are_found(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, real_server.url)

    findings = run(real_server, CONTROL, "calm", 1)

    assert findings.overlaps > 0
    assert findings.stale > 0


def test_one_holder_after_another_is_nothing(store: Store, tmp_path: Path) -> None:
    for turn in ("a", "b"):
        store.note("granted", turn)
        store.write(turn, None)

    findings = Findings.read(tmp_path / "notes", 0, 1)

    assert (findings.grants, findings.overlaps, findings.stale) == (2, 0, 0)


def test_a_write_after_that_of_a_later_holder_is_stale(store: Store, tmp_path: Path) -> None:
    store.note("granted", "a")
    store.note("granted", "b")
    store.write("b", None)
    store.write("a", None)

    findings = Findings.read(tmp_path / "notes", 0, 1)

    assert (findings.overlaps, findings.stale) == (1, 1)


def test_it_is_refused_where_its_fence_is_known(store: Store, tmp_path: Path) -> None:
    store.note("granted", "a")
    store.note("granted", "b")
    store.write("b", 2)
    with pytest.raises(StaleWrite):
        store.write("a", 1)

    findings = Findings.read(tmp_path / "notes", 0, 1)

    assert (findings.stale, findings.refused) == (0, 1)


def test_a_time_without_a_holder_counts_at_the_ends_too(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("granted a 3.0\nwritten a 4.0\ngranted b 5.0\nwritten b 6.0\n")

    assert Findings.read(notes, 0, 7).stall == 3
    assert Findings.read(notes, 2.5, 9).stall == 3
    assert Findings.read(notes, 2.5, 7).stall == 1


def test_the_page_names_every_promise_and_what_was_found() -> None:
    text = page.write(found())

    assert {promise.text for promise in PROMISES if promise.text not in text} == set()
    assert "No violation" in text
    assert "9 stays, 0 overlaps" in text
    assert all(row.title in text for row in ROWS)


def test_every_promise_has_mutants_and_a_page() -> None:
    assert all(by_promise().values())
    assert {
        promise.page
        for promise in PROMISES
        if not ROOT.joinpath(f"docs/{promise.page}.md").exists()
    } == set()


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"peers": {row.title: {"calm": BROKEN} for row in ROWS}}, "nothing goes wrong"),
        ({"peers": {row.title: {"calm": CALM} for row in ROWS}}, "no overlap is found"),
        ({"runs": [evidence.Searched("plain", "", 10, "", "exclusive: A")]}, "exclusive: A"),
        ({"rules": [evidence.LeftOut("order", is_caught=False)]}, "without a rule for order"),
        ({"storms": [evidence.Stormed("killed", "", "failure")]}, "killed: failure"),
        ({"mutants": {"a release compares the token": False}}, "mutant not killed"),
    ],
)
def test_what_went_wrong_is_told(others: dict[str, Any], said: str) -> None:
    violations = found(**others).violations()

    assert any(said in violation for violation in violations)
    assert "No violation" not in page.write(found(**others))


def test_a_redis_that_forgets_is_no_violation_unless_a_write_is_stale() -> None:
    peers = found().peers
    assert STORMS["flush"].forgets

    peers[OURS.title]["flush"] = CALM._replace(overlaps=1)
    peers[CONTROL.title]["flush"] = BROKEN
    assert found(peers=peers).violations() == []
    peers[OURS.title]["flush"] = CALM._replace(stale=1)
    assert len(found(peers=peers).violations()) == 1


def test_the_report_of_pytest_is_read() -> None:
    output = "<system-out>--- Captured Out ---\n\none server, kill: 9 grants\n</system-out>"
    name = "test_one_server_that_forgets_nothing_has_one_holder[kill]"
    report = f'<testsuites><testcase name="{name}">{output}</testcase></testsuites>'

    assert evidence.stormed(report.replace("--- C", "------ C")) == [
        evidence.Stormed("one server, kill", "9 grants", "passed")
    ]


def test_the_lines_of_the_mutants_are_read() -> None:
    said = (
        "  3.1 s  a: killed\n  9.0 s  b, for c: it survived tests/x.py::y\n1 of 2 mutants killed\n"
    )

    assert evidence.read_mutants(said) == {"a": True, "b, for c": False}


def test_the_page_in_the_docs_names_every_promise() -> None:
    text = ROOT.joinpath("docs/proof.md").read_text()

    assert {promise.text for promise in PROMISES if promise.text not in text} == set()
    assert "`make proof` wrote this page" in text
