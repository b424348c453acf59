"""What the loss of a lock is called, whatever stands in Redis of who forced it."""

from __future__ import annotations

import json

import pytest

from django_setnx_lock.core.protocol import replies

BY_NOBODY_KNOWN = [b'{"by":7,"reason":null}', b'{"by":["x"]}', b"{}"]


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "mark",
    [None, b"", b"left", b"\xff\xfe", b"[]", b"{", b"7", b"[" * 100_000],
    ids=lambda mark: repr(mark)[:9],
)
def test_a_lock_that_nobody_known_took_is_one_whose_lease_ran_out(mark: bytes | None) -> None:
    lost = replies.lost("a", mark)

    assert "its lease ran out or its key was removed" in str(lost)
    assert (lost.key, lost.forced_by, lost.reason) == ("a", "", "")


@pytest.mark.parametrize("mark", BY_NOBODY_KNOWN, ids=repr)
def test_who_forced_it_without_a_name_is_an_operator(mark: bytes) -> None:
    assert str(replies.lost("a", mark)) == "the lock 'a' was force-released by an operator"


def test_what_others_wrote_of_it_is_one_short_line() -> None:
    mark = json.dumps({"by": "joe\n\udce4", "reason": "x\nERROR forged\x1b[2J" + "x" * 9999})
    lost = replies.lost("a", mark.encode())

    assert str(lost).startswith(r"the lock 'a' was force-released by joe\n\udce4: x\nERROR forged")
    assert len(str(lost)) < 600
    assert lost.forced_by == r"joe\n\udce4"
