"""Whatever others wrote into Redis, the commands end well and write nothing that plays tricks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_setnx_lock import LockBusy, LockLost, inspector, lock
from tests.hostile import KEYS, METAS, RECORDS, TEXTS, hold, unsound, unsound_lines
from tests.hostile import sound_logs as sound_logs
from tests.management.holders import INDEX, client_of

if TYPE_CHECKING:
    from tests.management.commands.conftest import Ended, Locks

pytestmark = pytest.mark.usefixtures("no_collection")
LONGEST = 60_000


def check(ended: Ended, status: int = 0) -> Ended:
    """Hold what a command wrote to being sound."""
    assert ended.status == status
    # The escaped forms of HTML are not those of a terminal.
    texts = [ended.out.replace("<script", ""), ended.err.replace("<script", "")]
    assert [unsound(text, longest=LONGEST) for text in texts] == ["", ""]
    return ended


def try_all(locks: Locks, *keys: str) -> None:
    """Run each command on held locks, the last of which releases them."""
    assert len(check(locks("list")).out.splitlines()) == 3 + len(keys)
    listed = check(locks("list", "--json")).document["locks"]
    assert {one["key"] for one in listed} == set(keys)
    states = ("--warn-state", "held", "--warn-state", "foreign")
    assert len(check(locks("check", *states), 1).out.splitlines()) == 1 + len(keys)
    for key in keys:
        check(locks("show", "--", key))
        assert check(locks("show", "--json", "--", key)).document["locks"][0]["key"] == key
        with pytest.raises(LockBusy) as caught:
            lock(key).take(0)
        with pytest.raises(CommandError, match=r"is held by|have a NUL") as refused:
            call_command("with_lock", key, "true", wait=0)
        assert unsound_lines([caught.value, refused.value]) == []
        check(locks("release", "--yes", "--reason", TEXTS["lines"], "--", key))
        assert not inspector().get(f"lock:{key}").fingerprint


def test_no_record_of_a_holder_breaks_a_command(locks: Locks) -> None:
    records = list(RECORDS.values())
    # The check names twenty.
    for some in records[:20], records[20:]:
        held = [hold(f"k{number}", record) for number, record in enumerate(some)]

        try_all(locks, *(one.key for one in held))

        for one in held:
            with pytest.raises(LockLost, match=r"ERROR forged\\r\\n") as caught:
                one.check()
            assert unsound_lines([caught.value]) == []


def test_nothing_that_stands_beside_a_lock_breaks_a_command(locks: Locks) -> None:
    held = [hold(f"k{number}", meta=meta) for number, meta in enumerate(METAS.values())]

    try_all(locks, *(one.key for one in held))


def test_no_key_breaks_a_command(locks: Locks) -> None:
    keys = [key for key in KEYS if len(key) < 200]
    for key in keys:
        hold(key)

    try_all(locks, *keys)


def test_a_key_that_is_no_text_is_a_bad_value(locks: Locks) -> None:
    ended = check(locks("show", "Aufr\udce4umen"), 64)

    assert "argument KEY: invalid text value: 'Aufr\\udce4umen'" in ended.err


def test_names_that_are_no_text_are_in_no_list(locks: Locks) -> None:
    hold("k")
    for name in (b"lock:\xff\xfe", b"lock:\xed\xa0\x80"):
        client_of().set(name, "theirs")
        client_of().zadd(INDEX, {name: 10**15})

    for form in ("list", "--everything"), ("list", "--json", "--everything"):
        check(locks(*form))
    listed = locks("list", "--json", "--everything").document["locks"]
    assert [one["key"] for one in listed] == ["k"]
