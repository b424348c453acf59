"""What each step of the tour must have shown."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from example_project.tour import WentWrong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from example_project.tour.browser import Answer, Page


def _expect(holds: bool, expected: str, came: object) -> None:
    if not holds:
        raise WentWrong(f"expected {expected}, but got {came}")


def is_busy(answer: Answer) -> None:
    """Expect that the lock was taken, and that the answer names the wait in seconds."""
    wait = answer.retry_after
    _expect(
        answer.status == 409 and wait.isdecimal() and int(wait) > 0,
        "409 with Retry-After",
        _told(answer),
    )


def is_paid(answer: Answer) -> None:
    """Expect that the order was paid by this request."""
    _expect(answer.status == 200, "200", _told(answer))


def one_paid_one_waits(answers: Sequence[Answer], times_charged: int) -> None:
    """Expect that one of two payments at once was made."""
    statuses = sorted(answer.status for answer in answers)
    came = " and ".join(map(_told, answers))
    _expect(statuses == [200, 409], "one 200 and one 409", came)
    for answer in answers:
        if answer.status == 409:
            is_busy(answer)
    _expect(times_charged == 1, "one charge", times_charged)


def reads_only(page: Page, name: str) -> str:
    """Expect that the form cannot be edited; return what it says of whoever edits it."""
    said = re.search(rf"{name} is working on this order \(since .*?\)", page.text)
    _expect(said is not None and not _customer_in(page), f"a form that {name} has open", page.gist)
    return said[0] if said else ""


def may_edit(page: Page, customer: str) -> None:
    """Expect that the form can be edited, and shows that name."""
    _expect(customer == _customer_in(page), f"a form with {customer!r}", page.gist)


def is_saved(page: Page) -> None:
    """Expect that the form was saved, so that its lock is free."""
    _expect("was changed successfully" in page.text, "the form to be saved", page.gist)


def _customer_in(page: Page) -> str:
    """Return which customer stands in the form; "" if nothing can be typed there."""
    return next((fields["customer"] for _, fields in page.forms if "customer" in fields), "")


def job_ended_well(status: int) -> None:
    """Expect that the job ended with status 0."""
    _expect(status == 0, "the job's status to be 0", status)


def no_orphan(seconds: float) -> None:
    """Expect that the command of a killed job died with it, so many seconds later."""
    _expect(math.isfinite(seconds), "the killed job's command to be dead, too", "it alive")


def is_refused(status: int, said: str, paid_by: str, times_charged: int) -> None:
    """Expect that the late payment failed, and that the order stays paid and charged once."""
    came = f"status {status} with {said!r}, paid by {paid_by!r}, charged {times_charged} times"
    _expect(
        (status, paid_by, times_charged) == (1, "a visitor", 1) and "refused" in said,
        "the late payment to be refused",
        came,
    )


def row_of_holder(page: Page, key: str, pid: int) -> list[str]:
    """Return the row that lists the lock as held by the process ``pid``, from the key on."""
    # A box to select it by may stand before the key.
    row = next((row[row.index(key) :] for row in page.rows if key in row[:2]), [])
    _expect(
        len(row) > 4 and row[1] == "held" and _names(row[2], pid),
        f"a row with {key} held by process {pid}",
        row or page.gist,
    )
    return row


def names_holder(page: Page, pid: int) -> None:
    """Expect that the page asking for confirmation says whose lock it is about."""
    _expect(_names(page.text, pid), f"to be asked about process {pid}", page.gist)


def is_released(page: Page, key: str) -> None:
    """Expect that the page says that the lock was released, and lists it no more."""
    gone = all(key not in row[:2] for row in page.rows)
    _expect(
        gone and f"Released, but not stopped: {key}" in page.text,
        f"{key} to be released",
        page.gist,
    )


def all_wait(lines: Sequence[str], pids: Sequence[int]) -> None:
    """Expect that these processes are named, each in a line of its own, as those who wait."""
    _expect(they_wait(lines, pids), f"processes {pids} to wait", " / ".join(lines))


def they_wait(lines: Sequence[str], pids: Sequence[int]) -> bool:
    """Say whether `locks show`, which said these lines, names all these processes as waiters."""
    return all(any(_names(line, pid) for line in who_wait(lines)) for pid in pids)


def who_wait(lines: Sequence[str]) -> Sequence[str]:
    """Return the table of those who wait, of the ``lines`` of `locks show`; nothing without it."""
    heads = [number for number, line in enumerate(lines) if line.startswith("WAITING")]
    return lines[heads[0] :] if heads else []


def one_was_lost_and_the_rest_ran(statuses: Sequence[int]) -> None:
    """Expect that the first job noticed that its lock was taken away, and the others ended well."""
    expected = [76] + [0] * (len(statuses) - 1)
    _expect(list(statuses) == expected, f"the statuses {expected}", list(statuses))


def one_was_refused(ends: Sequence[tuple[int, list[str]]], pids: Sequence[int]) -> None:
    """Expect that one clerk was refused, with the cycle of both, and the other had both locks."""
    (went_on, both), (refused, said) = sorted(ends)
    _expect(
        (went_on, refused) == (0, 1)
        and any(line.startswith("has ") for line in both)
        and any("deadlock" in line for line in said[:1])
        and all(any(_names(line, pid) for line in said[1:]) for pid in pids),
        f"one of {pids} to be refused, with the deadlock of both",
        list(ends),
    )


def tells_the_forced_end(lines: Sequence[str], key: str, by: str) -> None:
    """Expect that a history has a forced end of the lock, for that reason."""
    rows = [line for line in lines if key in line.split()]
    forced = any("forced by" in row and by in row for row in rows)
    _expect(forced, f"a forced end of {key}", " / ".join(lines))


def _names(text: str, pid: int) -> bool:
    return re.search(rf":{pid}\b", text) is not None


def _told(answer: Answer) -> str:
    wait = f" (Retry-After: {answer.retry_after})" if answer.retry_after else ""
    return f"{answer.status}{wait}"
