from __future__ import annotations

import pytest
from django.utils import translation

from django_setnx_lock.core import Holder, LockInfo, State
from django_setnx_lock.descriptions import Said, duration, kept_words, state_word


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "-"),
        (0, "less than 1 s"),
        (0.999, "less than 1 s"),
        (1, "1 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (11_045, "3 h 4 min"),
        (86_400, "1 d"),
        (450_000, "5 d 5 h"),
    ],
)
def test_a_duration_is_said_in_its_two_largest_units(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize("language", ["en", "de"])
def test_words_that_are_kept_for_a_list_are_the_same(language: str) -> None:
    with translation.override(language):
        words = kept_words()
        for _ in range(2):
            for seconds in (None, 0.0, 0.999, 1.0, 59.9, 60.5, 450_000.0):
                assert words.duration(seconds) == duration(seconds)
            assert [words.state(one) for one in State] == [state_word(one) for one in State]


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_word_and_a_meaning(state: State) -> None:
    row = Said(LockInfo(key="k", name="lock:k", state=state))

    assert row.state == state.value
    assert row.meaning.endswith(".")


@pytest.mark.parametrize(
    ("holder", "said"),
    [
        (Holder(host="web-1", pid=7, user="ann", label="pay", note="x"), "ann@web-1:7 (pay; x)"),
        (Holder(host="web-1", pid=7), "web-1:7"),
        (Holder(), "?:?"),
        (None, "-"),
    ],
)
def test_a_holder_is_said_as_user_host_process_and_purpose(
    holder: Holder | None, said: str
) -> None:
    row = Said(LockInfo(key="k", name="lock:k", state=State.HELD, holder=holder))

    assert row.holder == said
