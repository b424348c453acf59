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


@pytest.mark.parametrize(
    ("between", "one", "other"),
    [
        ("", ("x", "y"), ("xy", "")),
        ("-", ("x-", "y"), ("x", "-y")),
        ("a", ("xa", "y"), ("x", "ay")),
        ("%3A", (":", "x"), ("", ":x")),
    ],
)
def test_a_separator_that_a_value_can_contain_would_let_two_tuples_share_a_key(
    between: str, one: tuple[str, str], other: tuple[str, str]
) -> None:
    text = f"<v0>{between}<v1>"
    unchecked = object.__new__(KeyTemplate)
    object.__setattr__(unchecked, "text", text)

    assert filled(unchecked, one) == filled(unchecked, other)
    with pytest.raises(ValueError, match="could run into each other"):
        KeyTemplate(text)


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


def test_values_are_filled_in_by_name() -> None:
    template = KeyTemplate("shop:<shop>:order:<pk>")

    assert template.format(pk=42, shop="berlin") == "shop:berlin:order:42"
    assert template.fields == ("shop", "pk")
    assert template.roots == {"shop", "pk"}


def test_a_field_may_be_used_twice() -> None:
    assert KeyTemplate("<a>:<a>").format(a=1) == "1:1"


def test_a_dotted_field_is_an_attribute_of_what_is_given() -> None:
    template = KeyTemplate("cart:<user.profile.code>")
    user = SimpleNamespace(profile=SimpleNamespace(code="x y"))

    assert template.roots == {"user"}
    assert template.format(user=user) == "cart:x%20y"


def test_a_field_may_be_called_self() -> None:
    assert KeyTemplate("<self.pk>").format(self=SimpleNamespace(pk=7)) == "7"


def test_a_template_without_fields_is_the_key_itself() -> None:
    assert KeyTemplate("nightly import").format(anything=1) == "nightly import"


def test_a_value_is_not_read_as_a_template() -> None:
    assert KeyTemplate("<a>:<b>").format(a="<b>", b="x") == "%3Cb%3E:x"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "42"),
        (True, "True"),
        ("a:b", "a%3Ab"),
        ("{a}", "%7Ba%7D"),
        ("a~b", "a%7Eb"),
        ("50%", "50%25"),
        ("é", "%C3%A9"),
        ("", ""),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (dt.date(2024, 2, 29), "2024-02-29"),
    ],
)
def test_a_value_is_written_percent_encoded(value: object, text: str) -> None:
    assert KeyTemplate("<v>").format(v=value) == text


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


def test_none_is_refused_because_unrelated_calls_would_share_the_lock() -> None:
    with pytest.raises(ValueError, match="<v> is None"):
        KeyTemplate("a:<v>").format(v=None)


def test_a_model_instance_is_refused_with_what_to_write_instead() -> None:
    with pytest.raises(TypeError, match=re.escape("write <row.pk>")):
        KeyTemplate("a:<row>").format(row=Row())


def test_a_value_that_was_not_given_is_named() -> None:
    with pytest.raises(LookupError, match=r"<b\.pk>: there is no 'b'"):
        KeyTemplate("<a>:<b.pk>").format(a=1)


def test_an_attribute_that_is_not_there_is_named() -> None:
    with pytest.raises(LookupError, match=r"<a\.pk>: .*'pk'"):
        KeyTemplate("<a.pk>").format(a=Plain())


@pytest.mark.parametrize(
    "text", ["a<", "a>", "<a", "a>b<c>", "<<a>>", "<a>>", "a:<b<c>>"], ids=repr
)
def test_a_bracket_without_its_partner_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"without its partner|is no name"):
        KeyTemplate(text)


@pytest.mark.parametrize(
    "field", ["", " ", "1a", "a b", "a.", ".a", "a..b", "a-b", "a-b:int", ":int", "a\n"]
)
def test_a_field_that_is_no_name_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match="is no name"):
        KeyTemplate(f"x:<{field}>")


def test_an_empty_template_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        KeyTemplate("")


@pytest.mark.parametrize("text", [None, 5, b"a:<b>"])
def test_a_template_that_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(TypeError, match="key template is a str"):
        KeyTemplate(text)


@pytest.mark.parametrize("text", ["order:{pk}", "order:%s", "order:%(pk)s"])
def test_another_syntax_for_values_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="one key for every call: write values as <pk>"):
        KeyTemplate(text)


@pytest.mark.parametrize("text", ["nightly-import", "{shop}:<pk>", "100%", "{shop}-import:<day>"])
def test_braces_and_signs_that_are_no_other_syntax_are_fine(text: str) -> None:
    assert KeyTemplate(text).text == text


@pytest.mark.parametrize("kind", ["int", "str", "uuid"])
def test_a_type_before_its_field_is_refused_with_what_to_write(kind: str) -> None:
    with pytest.raises(ValueError, match=f"has the type first: write <pk:{kind}>"):
        KeyTemplate(f"order:<{kind}:pk>")


@pytest.mark.parametrize("field", ["pk:", "pk:slug", "pk:Int", "pk: int", "slug:pk", "pk:int:int"])
def test_a_type_that_there_is_not_is_refused_with_those_there_are(field: str) -> None:
    with pytest.raises(ValueError, match="no known type: write one of int, str, uuid after"):
        KeyTemplate(f"order:<{field}>")


@pytest.mark.parametrize("text", ["<pk:int>:<pk:uuid>", "<pk:int>:<pk>", "<pk>:<a>:<pk:str>"])
def test_two_types_of_one_field_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is another type than <pk:\w+>: write one everywhere"):
        KeyTemplate(text)


def test_a_typed_field_may_be_used_twice() -> None:
    assert KeyTemplate("<pk:int>:<pk:int>").format(pk=1) == "1:1"


def test_the_names_of_typed_fields_are_without_their_types() -> None:
    template = KeyTemplate("shop:<shop.pk:uuid>:<pk:int>:<day>")

    assert template.fields == ("shop.pk", "pk", "day")
    assert template.roots == {"shop", "pk", "day"}
    assert template.types == {"shop.pk": "uuid", "pk": "int"}
    assert template.text == "shop:<shop.pk:uuid>:<pk:int>:<day>"


CODE = uuid.UUID("c0ffee00-1234-4abc-8def-0123456789ab")


@pytest.mark.parametrize(
    ("kind", "value", "key"),
    [
        ("int", "42", "42"),
        ("int", 42, "42"),
        ("int", Number.FORTY_TWO, "42"),
        ("int", -7, "-7"),
        ("int", "-7", "-7"),
        ("uuid", CODE, str(CODE)),
        ("uuid", str(CODE), str(CODE)),
        ("str", "042", "042"),
        ("str", "a:b", "a%3Ab"),
        ("str", 42, "42"),
    ],
    ids=repr,
)
def test_a_typed_value_is_written_as_str_writes_it(kind: str, value: object, key: str) -> None:
    assert KeyTemplate(f"<v:{kind}>").format(v=value) == key


def test_a_typed_attribute_is_read_too() -> None:
    template = KeyTemplate("<row.pk:int>")

    assert template.format(row=SimpleNamespace(pk=42)) == "42"
    with pytest.raises(ValueError, match=r"<row.pk> is '042', and has to be written '42'"):
        template.format(row=SimpleNamespace(pk="042"))


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


@pytest.mark.parametrize(
    ("kind", "text"), [("int", ""), ("int", "4.0"), ("int", "9" * 5000), ("uuid", "42")]
)
def test_a_text_that_is_no_value_of_the_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"<v> is '.{,80}: "):
        KeyTemplate(f"<v:{kind}>").format(v=text)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("int", True), ("int", Decimal(42)), ("int", CODE), ("uuid", 42), ("uuid", True)],
)
def test_a_value_of_another_type_is_refused(kind: str, value: object) -> None:
    with pytest.raises(TypeError, match="<v> is "):
        KeyTemplate(f"<v:{kind}>").format(v=value)


@pytest.mark.parametrize("kind", ["int", "str", "uuid"])
def test_a_typed_value_is_not_none_and_no_instance(kind: str) -> None:
    template = KeyTemplate(f"<v:{kind}>")

    with pytest.raises(ValueError, match="<v> is None"):
        template.format(v=None)
    with pytest.raises(TypeError, match=re.escape("write <v.pk>")):
        template.format(v=Row())


def test_of_all_texts_that_are_one_int_one_alone_makes_a_key() -> None:
    template = KeyTemplate("<v:int>")
    made: dict[int, str] = {}
    for length in (1, 2, 3):
        for text in map("".join, itertools.product("042+-_ ٤٢\n", repeat=length)):
            with contextlib.suppress(ValueError):
                number = int(template.format(v=text))
                assert made.setdefault(number, text) == text

    assert made[42] == "42"


@pytest.mark.parametrize("text", ["order}:<pk>", "{<slug>}:x", "{:<pk>", "{}:<pk>", "<a>:{x<b>:}"])
def test_braces_that_form_no_fixed_tag_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="form no hash tag of fixed text"):
        KeyTemplate(text)
