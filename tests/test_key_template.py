from __future__ import annotations

import contextlib
import datetime as dt
import enum
import io
import itertools
import re
import uuid
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from django.db import models
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy
from hypothesis import assume, example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from django_setnx_lock import KeyTemplate, lock


class Number(enum.IntEnum):
    FORTY_TWO = 42


VALUES = st.text(alphabet=st.sampled_from("aB0:{}~%-._/<>*? \0é漢\ud800\n"), max_size=6) | st.text(
    max_size=6
)
# Literals with everything a value could also have, everything it could not, and hash tags.
PLAIN = [":", "a", "0", "%", "%3A", ".", "-", "_", "~", "é", "/"]
BRACES = ["{t}", "{", "}"]


@st.composite
def templates(draw: st.DrawFn, *, braces: bool = True) -> KeyTemplate:
    """Any template that is accepted, of one to three values, with or without braces of its own."""
    parts = st.sampled_from([*PLAIN, *BRACES] if braces else PLAIN)
    literals = st.lists(parts, max_size=4).map("".join)
    count = draw(st.integers(1, 3))
    text = draw(literals)
    for number in range(count):
        text += f"<v{number}>" + draw(literals)
    try:
        return KeyTemplate(text)
    except ValueError:
        assume(False)
        raise


def filled(template: KeyTemplate, values: tuple[str, ...]) -> str:
    return template.resolve({f"v{number}": value for number, value in enumerate(values)})


@pytest.mark.unmeasured
@given(
    template=templates(),
    one=st.tuples(VALUES, VALUES, VALUES),
    other=st.tuples(VALUES, VALUES, VALUES),
)
@example(KeyTemplate("<v0>:<v1>"), ("a:b", "c", ""), ("a", "b:c", ""))
@example(KeyTemplate("<v0>x:y<v1>"), ("ax", "b", ""), ("a", "yb", ""))
@example(KeyTemplate("<v0>~<v1>"), ("a~", "b", ""), ("a", "~b", ""))
@example(KeyTemplate("<v0>é<v1>"), ("é", "b", ""), ("", "éb", ""))
def test_two_different_argument_tuples_never_give_one_key(
    template: KeyTemplate, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    used = len(template.fields)
    if one[:used] != other[:used]:
        assert filled(template, one) != filled(template, other)


@pytest.mark.unmeasured
@given(template=templates(braces=False), values=st.tuples(VALUES, VALUES, VALUES))
@example(KeyTemplate("a:<v0>"), ("{t}", "", ""))
def test_no_value_can_add_a_hash_tag(template: KeyTemplate, values: tuple[str, ...]) -> None:
    name = lock(filled(template, values) or "x").name

    assert "{" not in name


@given(values=st.tuples(VALUES, VALUES))
def test_no_value_can_change_the_slot_of_a_tagged_template(values: tuple[str, str]) -> None:
    key = KeyTemplate("{shop}:<v0>:<v1>").resolve({"v0": values[0], "v1": values[1]})

    assert key_slot(lock(key).name.encode()) == key_slot(b"shop")


@given(value=VALUES)
def test_a_value_becomes_letters_that_need_no_quoting_anywhere(value: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.%-]*", KeyTemplate("<v0>").resolve({"v0": value}))


ROW = SimpleNamespace(pk=42, owner=SimpleNamespace(code="x y"))
CODE = uuid.UUID("c0ffee00-1234-4abc-8def-0123456789ab")


@pytest.mark.parametrize(
    ("text", "values", "key"),
    [
        ("shop:<shop>:order:<pk>", {"pk": 42, "shop": "berlin"}, "shop:berlin:order:42"),
        ("<a>:<a>", {"a": 1}, "1:1"),
        ("<pk:int>:<pk:int>", {"pk": 1}, "1:1"),
        ("cart:<row.owner.code>", {"row": ROW}, "cart:x%20y"),
        ("<row.pk:int>", {"row": ROW}, "42"),
        ("<self.pk>", {"self": ROW}, "42"),
        ("nightly import", {"anything": 1}, "nightly import"),
        ("<a>:<b>", {"a": "<b>", "b": "x"}, "%3Cb%3E:x"),
    ],
)
def test_a_template_is_filled_with_the_values_it_names(
    text: str, values: dict[str, Any], key: str
) -> None:
    assert KeyTemplate(text).format(**values) == key


def test_a_template_tells_its_fields_and_their_types() -> None:
    template = KeyTemplate("shop:<shop.pk:uuid>:<pk:int>:<day>")

    assert template.fields == ("shop.pk", "pk", "day")
    assert template.roots == {"shop", "pk", "day"}
    assert template.types == {"shop.pk": "uuid", "pk": "int"}
    assert template.text == "shop:<shop.pk:uuid>:<pk:int>:<day>"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("v", 42, "42"),
        ("v", True, "True"),
        ("v", "a:b", "a%3Ab"),
        ("v", "{a}", "%7Ba%7D"),
        ("v", "a~b", "a%7Eb"),
        ("v", "50%", "50%25"),
        ("v", "é", "%C3%A9"),
        ("v", "", ""),
        ("v", uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("v", dt.date(2024, 2, 29), "2024-02-29"),
        ("v:int", "42", "42"),
        ("v:int", Number.FORTY_TWO, "42"),
        ("v:int", -7, "-7"),
        ("v:int", "-7", "-7"),
        ("v:uuid", CODE, str(CODE)),
        ("v:uuid", str(CODE), str(CODE)),
        ("v:str", "042", "042"),
        ("v:str", "a:b", "a%3Ab"),
        ("v:str", 42, "42"),
    ],
    ids=repr,
)
def test_a_value_is_written_percent_encoded_by_its_type(
    field: str, value: object, text: str
) -> None:
    assert KeyTemplate(f"<{field}>").format(v=value) == text


class Plain:
    pass


class Row:
    pk = 5


class Size(str, enum.Enum):
    LARGE = "large"


class Colour(enum.Enum):
    RED = 1


class Pair(enum.Enum):
    A = (1, 2)


class Shade(models.TextChoices):
    DARK = "dark"


NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.timezone.utc)
BERLIN = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (NOON, NOON.astimezone(BERLIN)),
        (Size.LARGE, "large"),
        (Shade.DARK, "dark"),
        (Number.FORTY_TWO, 42),
        (SimpleLazyObject(lambda: 42), 42),
        (SafeString("a"), "a"),
    ],
    ids=["times", "a str enum", "choices", "an int enum", "lazy", "safe text"],
)
def test_equal_values_give_one_key(one: object, other: object) -> None:
    assert one == other
    assert KeyTemplate("<v>").format(v=one) == KeyTemplate("<v>").format(v=other)


def test_an_aware_time_is_written_in_utc() -> None:
    key = KeyTemplate("<v>").format(v=NOON.astimezone(BERLIN))

    assert unquote(key) == "2026-03-01 12:00:00+00:00"


def test_an_enum_member_is_its_value() -> None:
    assert KeyTemplate("<v>:<w:int>").format(v=Colour.RED, w=Number.FORTY_TWO) == "1:42"


def numbers() -> Any:
    yield 1


@pytest.mark.parametrize(
    "value",
    [
        *(1.5, 1j, b"a", bytearray(b"a"), [1], (1,), {1}, frozenset({1}), {"a": 1}),
        *(Decimal("1.50"), Fraction(1, 2), dt.time(12)),
        *(dt.datetime(2026, 3, 1, 12), dt.timedelta(1), Pair.A),  # noqa: DTZ001 - a naive one is to be refused
        *(memoryview(b"a"), numbers(), iter([1]), io, Plain(), Plain, len, gettext_lazy("text")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_may_have_several_texts_or_none_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"<v> is an? .*, which does not make one clear key"):
        KeyTemplate("a:<v>").format(v=value)


REFUSED_VALUES: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    *(
        (f"a:<v{kind}>", {"v": value}, error, said)
        for kind in ("", ":int", ":str", ":uuid")
        for value, error, said in (
            (None, ValueError, "<v> is None"),
            (Row(), TypeError, r"write <v\.pk>"),
        )
    ),
    ("<a>:<b.pk>", {"a": 1}, LookupError, r"<b\.pk>: there is no 'b'"),
    ("<a.pk>", {"a": Plain()}, LookupError, r"<a\.pk>: .*'pk'"),
    *(("<v:int>", {"v": value}, TypeError, "<v> is ") for value in (True, Decimal(42), CODE)),
    *(("<v:uuid>", {"v": value}, TypeError, "<v> is ") for value in (42, True)),
    *(
        ("<v:int>", {"v": text}, ValueError, r"<v> is '.{,80}: ")
        for text in ("", "4.0", "9" * 5000)
    ),
    ("<v:uuid>", {"v": "42"}, ValueError, r"<v> is '.{,80}: "),
]


@pytest.mark.parametrize(
    ("text", "values", "error", "said"), REFUSED_VALUES, ids=range(len(REFUSED_VALUES))
)
def test_a_value_that_is_none_of_the_field_is_refused(
    text: str, values: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        KeyTemplate(text).format(**values)


NO_PARTNER, NO_NAME = "without its partner|is no name", "is no name"
REFUSED_TEMPLATES: dict[str, list[Any]] = {
    NO_PARTNER: ["a<", "a>", "<a", "a>b<c>", "<<a>>", "<a>>", "a:<b<c>>"],
    NO_NAME: [
        f"x:<{field}>"
        for field in ("", " ", "1a", "a b", "a.", ".a", "a..b", "a-b", "a-b:int", ":int", "a\n")
    ],
    "must not be empty": [""],
    "key template is a str": [None, 5, b"a:<b>"],
    "one key for every call: write values as <pk>": ["order:{pk}", "order:%s", "order:%(pk)s"],
    "has the type first: write <pk:int>": ["order:<int:pk>"],
    "no known type: write one of int, str, uuid after": [
        *("<pk:>", "<pk:slug>", "<pk:Int>", "<pk: int>", "<slug:pk>", "<pk:int:int>")
    ],
    r"is another type than <pk:\w+>: write one everywhere": [
        *("<pk:int>:<pk:uuid>", "<pk:int>:<pk>", "<pk>:<a>:<pk:str>")
    ],
    "could run into each other": ["<a><b>", "<a>-<b>", "<a>a<b>", "<a>%3A<b>"],
    "form no hash tag of fixed text": [
        *("order}:<pk>", "{<slug>}:x", "{:<pk>", "{}:<pk>", "<a>:{x<b>:}")
    ],
}


@pytest.mark.parametrize("said", REFUSED_TEMPLATES)
def test_a_template_that_cannot_be_meant_is_refused_with_what_to_write(said: str) -> None:
    for text in REFUSED_TEMPLATES[said]:
        with pytest.raises((TypeError, ValueError), match=said):
            KeyTemplate(text)


@pytest.mark.parametrize("text", ["nightly-import", "{shop}:<pk>", "100%", "{shop}-import:<day>"])
def test_braces_and_signs_that_are_no_other_syntax_are_fine(text: str) -> None:
    assert KeyTemplate(text).text == text


@pytest.mark.parametrize("text", ["042", "+42", " 42", "42\n", "4_2", "٤٢", "-0"])
def test_another_spelling_of_an_int_is_refused_with_its_own(text: str) -> None:
    with pytest.raises(ValueError, match=f"and has to be written '{int(text)}'"):
        KeyTemplate("<v:int>").format(v=text)


@pytest.mark.parametrize(
    "text", [str(CODE).upper(), CODE.hex, f"{{{CODE}}}", CODE.urn, f"urn:{CODE}", f"{CODE}}}"]
)
def test_another_spelling_of_a_uuid_is_refused_with_its_own(text: str) -> None:
    with pytest.raises(ValueError, match=f"and has to be written '{CODE}'"):
        KeyTemplate("<v:uuid>").format(v=text)


def test_of_all_texts_that_are_one_int_one_alone_makes_a_key() -> None:
    template = KeyTemplate("<v:int>")
    made: dict[int, str] = {}
    for length in (1, 2, 3):
        for text in map("".join, itertools.product("042+-_ ٤٢\n", repeat=length)):
            with contextlib.suppress(ValueError):
                number = int(template.format(v=text))
                assert made.setdefault(number, text) == text

    assert made[42] == "42"
