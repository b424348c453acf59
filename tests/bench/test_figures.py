"""The arithmetic of the bench, on turns written by hand."""

from __future__ import annotations

import pytest

from bench.figures import (
    Turn,
    arrivals,
    handovers,
    longest_wait,
    most_overtaken,
    most_overtaken_by_arrival,
    overlaps,
    percentile,
    span,
)

ONE_AFTER_ANOTHER = [Turn(1, 0, 1, 2), Turn(2, 0, 3, 4), Turn(3, 1, 5, 6)]


def test_turns_one_after_another_do_not_overlap() -> None:
    assert overlaps(ONE_AFTER_ANOTHER) == 0


def test_a_turn_that_begins_before_another_has_ended_overlaps() -> None:
    turns = [Turn(1, 0, 1, 3), Turn(2, 0, 2, 4)]

    assert overlaps(turns) == 1


def test_a_turn_within_a_long_one_overlaps_although_the_one_before_it_has_ended() -> None:
    turns = [Turn(1, 0, 1, 9), Turn(2, 0, 2, 3), Turn(3, 0, 4, 5)]

    assert overlaps(turns) == 2


def test_the_order_in_which_turns_are_reported_does_not_matter() -> None:
    turns = [Turn(2, 0, 2, 4), Turn(1, 0, 1, 3)]

    assert overlaps(turns) == 1


def test_a_handover_lasts_from_the_end_of_one_to_the_beginning_of_the_next() -> None:
    assert handovers(ONE_AFTER_ANOTHER) == [1, 1]


def test_the_same_one_again_is_no_handover() -> None:
    turns = [Turn(1, 0, 1, 2), Turn(1, 2, 3, 4)]

    assert handovers(turns) == []


def test_one_who_came_after_the_release_was_handed_nothing() -> None:
    turns = [Turn(1, 0, 1, 2), Turn(2, 2.5, 3, 4)]

    assert handovers(turns) == []


def test_an_overlap_is_no_handover() -> None:
    turns = [Turn(1, 0, 1, 3), Turn(2, 0, 2, 4)]

    assert handovers(turns) == []


def test_first_come_first_served_overtakes_nobody() -> None:
    turns = [Turn(1, 0, 1, 2), Turn(2, 0.5, 3, 4), Turn(3, 0.6, 5, 6)]

    assert most_overtaken(turns) == 0


def test_everybody_who_came_later_and_got_in_earlier_has_overtaken() -> None:
    turns = [Turn(2, 1, 2, 3), Turn(3, 1.5, 4, 5), Turn(2, 3, 6, 7), Turn(1, 0, 8, 9)]

    assert most_overtaken(turns) == 3


def test_who_came_at_the_same_moment_has_not_overtaken() -> None:
    turns = [Turn(1, 0, 1, 2), Turn(2, 0, 3, 4)]

    assert most_overtaken(turns) == 0


def test_overtaking_is_counted_by_the_turn_that_suffers_most() -> None:
    turns = [Turn(3, 2, 3, 4), Turn(2, 1, 5, 6), Turn(1, 0, 7, 8)]

    assert most_overtaken(turns) == 2


def test_by_arrival_the_server_tells_who_came_first() -> None:
    # The first wanted it first, but its request came second.
    turns = [Turn(2, 1, 2, 3, "b"), Turn(1, 0, 4, 5, "a")]

    assert most_overtaken(turns) == 1
    assert most_overtaken_by_arrival(turns, ["b", "a"]) == 0
    assert most_overtaken_by_arrival(turns, ["a", "b"]) == 1


def test_a_turn_the_server_never_saw_is_refused() -> None:
    with pytest.raises(ValueError, match="1 turns"):
        most_overtaken_by_arrival([Turn(1, 0, 1, 2, "a")], [])


MONITORED = b"\r\n".join(
    [
        b"+OK",
        b'+1.1 [0 unix:/s] "EVALSHA" "ab" "1" "lock:a" "tok2" "30000"',
        b'+1.2 [0 lua] "SET" "lock:a" "tok3" "NX"',
        b'+1.3 [0 unix:/s] "EVALSHA" "ab" "1" "lock:a" "tok1" "{\\"pid\\":1}"',
        b'+1.4 [0 unix:/s] "EVALSHA" "ab" "1" "lock:a" "tok2" "30000"',
        b'+1.5 [0 unix:/s] "SET" "lock:a" "tok3"',
        b"",
    ]
)


def test_tokens_arrive_in_the_order_in_which_clients_first_sent_them() -> None:
    assert arrivals(MONITORED, ["tok1", "tok2", "tok3", "tok4"]) == ["tok2", "tok1", "tok3"]


def test_the_longest_wait_is_from_the_wish_to_the_beginning() -> None:
    assert longest_wait(ONE_AFTER_ANOTHER) == 4


def test_the_span_is_from_the_first_wish_to_the_last_end() -> None:
    assert span(ONE_AFTER_ANOTHER) == 6


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (100, 100), (0, 1)])
def test_a_percentile_is_one_of_the_values(percent: float, value: int) -> None:
    assert percentile(range(1, 101), percent) == value


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
