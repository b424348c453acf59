from __future__ import annotations

import hashlib
import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from django_setnx_lock.core.protocol.keys import (
    MAX_NAME_BYTES,
    hash_tag,
    index_for,
    meta_key,
    name_for,
)

PREFIX = "lock:"
TOKENS = st.text(alphabet="0123456789abcdef", min_size=32, max_size=32)
# Braces, colons and the words of the companions, so that a clash is likely if one is possible.
BESIDE = ("meta", "waiters", "waiting", "shares", "holders", "gone", "forced")
WORDS = ["lock:", "wake", "index", *BESIDE]
NASTY = st.lists(
    st.sampled_from(["{", "}", ":", "a", "b", "~", "é", "\0", " ", *WORDS]),
    min_size=1,
    max_size=8,
).map("".join)
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1)
# What is written as a template is refused as a key.
ANY_KEY = (NASTY | TEXT).filter(lambda key: not ("<" in key and ">" in key))


def companions(name: str, token: str = "0" * 32) -> set[str]:
    stem = meta_key(name).removesuffix("meta")
    return {f"{stem}{end}" for end in (*BESIDE, f"wake:{token}", f"mail:{token}")}


def is_accepted(name: str) -> bool:
    try:
        meta_key(name)
    except ValueError:
        return False
    return True


def test_the_companions_of_a_plain_name_carry_it_as_their_hash_tag() -> None:
    assert meta_key("lock:order:42") == "{lock:order:42}:meta"


def test_the_companions_of_a_tagged_name_carry_its_own_tag() -> None:
    assert meta_key("lock:{shop}:42") == "{shop}:lock:{shop}:42:meta"


@given(key=ANY_KEY, token=TOKENS)
@example(key="{a}", token="0" * 32)
@example(key="a{", token="0" * 32)
@example(key="}{a}", token="0" * 32)
def test_all_keys_of_a_lock_are_in_the_slot_of_its_name(key: str, token: str) -> None:
    name = name_for(PREFIX, key)
    if not is_accepted(name):
        return

    slots = {key_slot(other.encode()) for other in companions(name, token)}

    assert slots == {key_slot(name.encode())}


@given(one=ANY_KEY, other=ANY_KEY, token=TOKENS)
@example(one="a", other="{lock:a}:meta", token="0" * 32)
@example(one="{lock:a}:meta", other="a", token="0" * 32)
def test_no_key_of_one_lock_is_a_key_of_another(one: str, other: str, token: str) -> None:
    names = name_for(PREFIX, one), name_for(PREFIX, other)
    if names[0] == names[1] or not all(map(is_accepted, names)):
        return

    mine, theirs = ({name, *companions(name, token)} for name in names)

    assert not mine & theirs
    assert index_for(PREFIX) not in mine | theirs


@given(key=ANY_KEY, token=TOKENS)
def test_the_keys_of_a_lock_differ_among_themselves(key: str, token: str) -> None:
    name = name_for(PREFIX, key)
    if not is_accepted(name):
        return

    assert len({name, *companions(name, token)}) == 3 + len(BESIDE)


@pytest.mark.parametrize("prefix", ["{shop}:", ""])
@pytest.mark.parametrize("companion", BESIDE)
def test_a_prefix_that_lets_names_look_like_companions_keeps_them_apart(
    prefix: str, companion: str
) -> None:
    name = name_for(prefix, "a")
    alike = meta_key(name).removesuffix("meta") + companion
    key = alike.removeprefix(prefix)

    try:
        other = name_for(prefix, key)
        meta_key(other)
    except ValueError:
        return

    assert other not in companions(name)


NO_NAMES: dict[tuple[Any, ...], tuple[type[Exception], str]] = {
    ("{}", "a{}b", "}", "a}", "}{", "{}{a}", "a}b{"): (ValueError, "form no hash tag"),
    ("",): (ValueError, "must not be empty"),
    (None, 42, b"a", ("a",)): (TypeError, "is a str, not"),
    ("\ud800", "a\udfffb"): (ValueError, "name|surrogates"),
}
NO_KEYS: dict[tuple[Any, ...], tuple[type[Exception], str]] = {
    ("",): (ValueError, "must not be empty"),
    (None, 42, b"a"): (TypeError, r"write for example f'order:\{pk\}'"),
    # A hash tag that would be cut.
    ("{" + "x" * 400 + "}", "x" * 400 + "{shop}"): (ValueError, "hash tag of the lock key"),
}


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [(name, *refused) for names, refused in NO_NAMES.items() for name in names],
)
def test_what_is_no_name_is_refused(name: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        meta_key(name)


@pytest.mark.parametrize(
    ("key", "error", "said"),
    [(key, *refused) for keys, refused in NO_KEYS.items() for key in keys],
)
def test_what_is_no_key_is_refused(key: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        name_for(PREFIX, key)


def test_an_opening_brace_alone_is_harmless() -> None:
    assert key_slot(meta_key("a{b").encode()) == key_slot(b"a{b")


def test_a_short_key_becomes_prefix_and_key() -> None:
    assert name_for("lock:", "order:42") == "lock:order:42"


@given(one=ANY_KEY, other=ANY_KEY)
def test_two_short_keys_never_share_a_name(one: str, other: str) -> None:
    if one != other:
        assert name_for(PREFIX, one) != name_for(PREFIX, other)


@pytest.mark.unmeasured
@given(
    start=st.text(alphabet=string.ascii_letters + "é~", min_size=300, max_size=320),
    ends=st.tuples(st.text(max_size=3), st.text(max_size=3)),
)
def test_two_long_keys_with_one_beginning_never_share_a_name(
    start: str, ends: tuple[str, str]
) -> None:
    if ends[0] != ends[1]:
        assert name_for(PREFIX, start + ends[0]) != name_for(PREFIX, start + ends[1])


@pytest.mark.parametrize("letter", ["x", "é", "漢", "🔒"])
def test_a_long_name_keeps_its_beginning_and_ends_in_a_hash(letter: str) -> None:
    key = "order:" + letter * 400

    name = name_for(PREFIX, key)

    kept, _, digest = name.rpartition("~")
    assert (PREFIX + key).startswith(kept)
    assert len(kept.encode()) > 180
    assert len(digest) == 64
    assert len(name.encode()) <= MAX_NAME_BYTES


def test_a_name_is_shortened_only_beyond_the_limit() -> None:
    at_limit = "x" * (MAX_NAME_BYTES - len(PREFIX))

    assert name_for(PREFIX, at_limit) == PREFIX + at_limit
    assert "~" in name_for(PREFIX, at_limit + "x")


def test_a_long_name_stays_in_the_slot_of_its_tag() -> None:
    name = name_for(PREFIX, "{shop}:" + "x" * 400)

    assert key_slot(name.encode()) == key_slot(b"shop")
    assert hash_tag(name) == "shop"


def test_a_key_cannot_be_made_to_meet_one_that_was_shortened() -> None:
    long = "a" * 182 + "~" + "y" * 100
    forged = "a" * 182 + "~" + hashlib.sha256(f"{PREFIX}{long}".encode()).hexdigest()

    assert name_for(PREFIX, forged) != name_for(PREFIX, long)
