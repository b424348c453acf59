"""Each check of the tour is shown an answer that it must not accept."""

from __future__ import annotations

import math

import pytest

from example_project.tour import WentWrong, checks
from example_project.tour.browser import Answer, Page

ROW = "<tr><th>order:3</th><td>held</td><td>root@web:4242</td><td>1 s</td><td>29 s</td></tr>"
QUEUE = ["Waiting:  2", "Process:  42", "Waiting:", "1.  web:43 (a)", "2.  web:44 (b)"]
CYCLE = ["CommandError: a deadlock", "web:43 holds 'a'", "web:44 holds 'b'"]
ENDS = [(1, CYCLE), (0, ["has a and b"])]
HISTORY = ["order:5  forced by ann: it hangs  web:42", "order:5  released  web:43"]
RELEASED = "<p>The lock “order:3” was released.</p>"


def answer(status: int, retry_after: str = "", text: str = "") -> Answer:
    return Answer(status=status, url="/", text=text, seconds=0.1, retry_after=retry_after)


def page(text: str) -> Page:
    return Page(answer(200, text=text))


def test_what_is_right_is_accepted() -> None:
    checks.is_busy(answer(409, "10"))
    checks.is_paid(answer(200))
    checks.one_paid_one_waits([answer(409, "10"), answer(200)], 1)
    checks.job_ended_well(0)
    checks.no_orphan(0.01)
    checks.names_holder(page(ROW), 4242)
    checks.is_released(page(RELEASED), "order:3")
    checks.is_refused(1, "refused: ...", "a visitor", 1)
    checks.all_wait(QUEUE, [43, 44])
    checks.one_was_lost_and_the_rest_ran([76, 0, 0])
    checks.one_was_refused(ENDS, [43, 44])
    checks.one_was_refused(ENDS[::-1], [43, 44])
    checks.tells_ends(HISTORY, "order:5", "it hangs", 1)

    assert checks.row_of_holder(page(ROW), "order:3", 4242)[3:] == ["1 s", "29 s"]


@pytest.mark.parametrize(
    "wrong",
    [answer(200), answer(409), answer(409, "0"), answer(409, "soon"), answer(503, "5")],
    ids=str,
)
def test_an_answer_that_is_not_409_with_a_wait_is_not_busy(wrong: Answer) -> None:
    with pytest.raises(WentWrong, match="expected 409 with Retry-After"):
        checks.is_busy(wrong)


@pytest.mark.parametrize("status", [302, 409, 503])
def test_an_answer_that_is_not_200_has_not_paid(status: int) -> None:
    with pytest.raises(WentWrong, match=f"expected 200, but got {status}"):
        checks.is_paid(answer(status))


@pytest.mark.parametrize(
    ("answers", "times_charged"),
    [
        ([answer(200), answer(200)], 2),
        ([answer(409, "10"), answer(409, "10")], 0),
        ([answer(200), answer(409)], 1),
        ([answer(200), answer(409, "10")], 2),
    ],
)
def test_a_race_that_is_not_won_by_one_is_noticed(
    answers: list[Answer], times_charged: int
) -> None:
    with pytest.raises(WentWrong):
        checks.one_paid_one_waits(answers, times_charged)


def test_a_job_that_fails_is_noticed() -> None:
    with pytest.raises(WentWrong, match="status to be 0, but got 76"):
        checks.job_ended_well(76)


def test_a_command_that_outlives_its_job_is_noticed() -> None:
    with pytest.raises(WentWrong, match="command to be dead, too"):
        checks.no_orphan(math.inf)


@pytest.mark.parametrize(
    ("status", "said", "paid_by", "times_charged"),
    [
        (0, "paid", "the counter", 2),
        (1, "busy", "a visitor", 1),
        (1, "refused", "the counter", 1),
        (1, "refused", "a visitor", 2),
    ],
)
def test_a_late_payment_that_is_not_refused_is_noticed(
    status: int, said: str, paid_by: str, times_charged: int
) -> None:
    with pytest.raises(WentWrong, match="the late payment to be refused"):
        checks.is_refused(status, said, paid_by, times_charged)


@pytest.mark.parametrize(
    ("key", "pid", "text"),
    [
        ("order:3", 4243, ROW),
        ("order:3", 42, ROW),
        ("order:4", 4242, ROW),
        ("order:3", 4242, ROW.replace("held", "lease over")),
        ("order:3", 4242, "<p>Nobody holds a lock right now.</p>"),
    ],
)
def test_a_list_without_the_holder_is_noticed(key: str, pid: int, text: str) -> None:
    with pytest.raises(WentWrong, match=f"held by process {pid}"):
        checks.row_of_holder(page(text), key, pid)


def test_what_came_instead_of_a_page_is_told_in_one_short_line() -> None:
    wrong = page("<style>h1 {}</style><h1>NameError\n at /admin/</h1>" + "<p>and so on</p>" * 999)

    with pytest.raises(WentWrong) as caught:
        checks.row_of_holder(wrong, "order:3", 4242)

    assert "got 200 with NameError at /admin/ and so on" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_question_about_somebody_else_is_noticed() -> None:
    with pytest.raises(WentWrong, match="process 4243"):
        checks.names_holder(page(ROW), 4243)


@pytest.mark.parametrize("text", ["", RELEASED.replace(":3", ":4"), RELEASED + ROW])
def test_a_lock_that_is_not_released_is_noticed(text: str) -> None:
    with pytest.raises(WentWrong, match="order:3 to be released"):
        checks.is_released(page(text), "order:3")


@pytest.mark.parametrize("lines", [[], QUEUE[:-1], QUEUE[:2], ["web:43", "web:44", "Waiting:"]])
def test_a_queue_without_one_of_those_who_wait_is_noticed(lines: list[str]) -> None:
    with pytest.raises(WentWrong, match=r"processes \[43, 44\] to wait"):
        checks.all_wait(lines, [43, 44])


@pytest.mark.parametrize("statuses", [[0, 0, 0], [76, 76, 0], [76, 0, 75]])
def test_a_job_that_does_not_lose_the_lock_alone_is_noticed(statuses: list[int]) -> None:
    with pytest.raises(WentWrong, match="statuses"):
        checks.one_was_lost_and_the_rest_ran(statuses)


@pytest.mark.parametrize(
    "ends",
    [
        [ENDS[1], ENDS[1]],
        [ENDS[0], ENDS[0]],
        [(1, []), ENDS[1]],
        [(1, ["CommandError: busy", *CYCLE[1:]]), ENDS[1]],
        [(1, CYCLE[:2]), ENDS[1]],
        [ENDS[0], (0, [])],
    ],
)
def test_a_deadlock_of_which_not_just_one_is_refused_is_noticed(
    ends: list[tuple[int, list[str]]],
) -> None:
    with pytest.raises(WentWrong, match=r"one of \[43, 44\] to be refused"):
        checks.one_was_refused(ends, [43, 44])


@pytest.mark.parametrize("lines", [[], HISTORY[:1], HISTORY[1:]])
def test_a_history_without_an_end_is_noticed(lines: list[str]) -> None:
    with pytest.raises(WentWrong, match="a forced end of order:5 and 1 released"):
        checks.tells_ends(lines, "order:5", "it hangs", 1)
