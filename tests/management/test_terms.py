from __future__ import annotations

import pytest

# How long before its end a lease is given up shows in no answer of the command.
from django_setnx_lock.management.with_lock.arguments import Terms, terms_of


def terms(lease: float, *, kill_after: float | None = None, on_lost: str = "term") -> Terms:
    """Return the terms that with_lock has with these options."""
    flags = dict.fromkeys(("foreground", "no_stdin", "main_only"), False)
    options = {"kill_after": kill_after, "on_lost": on_lost, "max_time": None, **flags}
    return terms_of(options, lease)


@pytest.mark.parametrize(
    ("lease", "kill_after", "margin"), [(30, 10, 1), (3, 1, 0.3), (0.6, 0.2, 0.06), (3600, 10, 1)]
)
def test_the_defaults_leave_time_for_each_lease(
    lease: float, kill_after: float, margin: float
) -> None:
    found = terms(lease)

    assert (found.kill_after, found.margin) == pytest.approx((kill_after, margin))
    assert found.notice < lease / 2


@pytest.mark.parametrize(
    ("on_lost", "notice", "margin"), [("term", 11, 1), ("kill", 1, 1), ("ignore", 0, 0)]
)
def test_how_long_before_its_end_a_lease_is_given_up(
    on_lost: str, notice: float, margin: float
) -> None:
    found = terms(30, on_lost=on_lost)

    assert (found.notice, found.margin) == (notice, margin)


@pytest.mark.parametrize(("kill_after", "is_refused"), [(28.9, False), (29, True), (60, True)])
def test_a_lease_that_leaves_no_time_is_refused(kill_after: float, is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(ValueError, match="lower --kill-after below 29"):
            terms(30, kill_after=kill_after)
    else:
        assert terms(30, kill_after=kill_after).kill_after == kill_after


@pytest.mark.parametrize("on_lost", ["kill", "ignore"])
def test_where_a_lost_lock_leaves_no_time_to_end_any_will_do(on_lost: str) -> None:
    assert terms(30, kill_after=60, on_lost=on_lost).kill_after == 60
