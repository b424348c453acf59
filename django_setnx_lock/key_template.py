"""Key templates: ``"order:<pk>"`` with values filled in so that two calls never share a key."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

if TYPE_CHECKING:
    from typing_extensions import Self

_PLACEHOLDER = re.compile(r"<([^<>]*)>")
_FIELD = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_HASH_TAG = re.compile(r"[^{}]*\{[^{}]+\}")
# How values are written elsewhere; alone, "{tag}" is one key for all too.
_OTHER_SYNTAX = re.compile(r"\{\w*\}|%\(?\w")
# quote() leaves these as they are and writes the rest with "%". No value has anything else.
_VALUE = r"[A-Za-z0-9_.%-]+"
_TYPE = re.compile(r":[^<>]*>")
# What the keys of each template match; the templates of this process, without types. A text that a
# program makes anew for each key must not fill its memory.
_known: dict[str, re.Pattern[str]] = {}
_MOST_KNOWN = 1000


class MissingValue(LookupError):
    """A template names something that it was not given."""


class NotCanonical(ValueError):
    """A text is another spelling of a value, or spells none, where one value is to be one key."""


# The names of Django's path converters. Every text is a str of its own.
TYPES: Mapping[str, Any] = {"int": int, "str": str, "uuid": UUID}
#: What a key has that is a template.
UNFILLED = re.compile(rf"<[^\W\d][\w.]*(:({'|'.join(TYPES)}))?>")


class LockKey(str):
    """A key that knows its ``template``, without types: ``order:<pk>`` for ``order:42``."""

    __slots__ = ("template",)
    template: str

    def __new__(cls, key: str, template: str) -> Self:
        made = super().__new__(cls, key)
        made.template = template
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.template)


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """A lock key with places for values: ``KeyTemplate("order:<pk>").format(pk=42)``.

    ``<name>`` is one value, ``<name.attribute>`` an attribute of it, ``<name:type>`` a value
    of a type: ``int``, ``uuid`` or ``str``. Of the texts that are read as one int or UUID
    only that which ``str()`` gives of it makes a key. Values are percent-encoded, so that
    none can reach into the next one or add a hash tag.

    Raises ValueError for a template that is empty or malformed, that names a type that there
    is not or two of them for one field, or in which two values stand side by side with
    nothing between them that cannot be part of a value (``:``).
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(
                'a key template is a str such as "order:<pk>", '
                f"not {type(self.text).__name__} {self.text!r}"
            )
        if not self.text:
            raise ValueError("a lock's key must not be empty")
        literals = _PLACEHOLDER.split(self.text)[::2]
        if any("<" in literal or ">" in literal for literal in literals):
            raise ValueError(f"the key template {self.text!r} has a < or > without its partner")
        for written in _PLACEHOLDER.findall(self.text):
            self._refuse_malformed(written)
        braces = next((literal for literal in literals if "{" in literal or "}" in literal), "")
        if braces and not _HASH_TAG.match(braces):
            raise ValueError(
                f"the braces in the key template {self.text!r} form no hash tag of fixed text; "
                'write "{tag}", or leave them out'
            )
        if not self.fields and _OTHER_SYNTAX.search(self.text):
            raise ValueError(
                f"the key template {self.text!r} is one key for every call: write values as <pk>"
            )
        for between in literals[1:-1]:
            if not re.sub(_VALUE, "", between):
                raise ValueError(
                    f"two values of the key template {self.text!r} could run into each other; "
                    'put a ":" between them'
                )
        if self.untyped not in _known and len(_known) < _MOST_KNOWN:
            _known[self.untyped] = re.compile(_VALUE.join(map(re.escape, literals)))

    def _refuse_malformed(self, written: str) -> None:
        field, colon, kind = written.partition(":")
        problem = ""
        if field in TYPES and _FIELD.match(kind) and kind not in TYPES:
            problem = f"has the type first: write <{kind}:{field}>"
        elif not _FIELD.match(field):
            problem = "is no name: write for example <pk> or <pk:int>"
        elif colon and kind not in TYPES:
            problem = f"has no known type: write one of {', '.join(TYPES)} after the colon"
        elif kind != self.types.get(field, ""):
            problem = f"is another type than <{field}:{self.types[field]}>: write one everywhere"
        if problem:
            raise ValueError(f"<{written}> in the key template {self.text!r} {problem}")

    @property
    def fields(self) -> tuple[str, ...]:
        """The names between the angle brackets, in order, with dots and without types."""
        return tuple(written.partition(":")[0] for written in _PLACEHOLDER.findall(self.text))

    @property
    def untyped(self) -> str:
        """The text without types: what metrics call the locks of this template."""
        return _TYPE.sub(">", self.text)

    @property
    def types(self) -> Mapping[str, str]:
        """The types of those fields that have one."""
        written = (one.partition(":") for one in _PLACEHOLDER.findall(self.text))
        return {field: kind for field, colon, kind in written if colon}

    @property
    def roots(self) -> frozenset[str]:
        """The names that must be given: each field up to its first dot."""
        return frozenset(field.partition(".")[0] for field in self.fields)

    def format(self, /, **values: Any) -> LockKey:
        """Return the key for ``values``. Raises as :meth:`resolve` does."""
        return self.resolve(values)

    def resolve(self, values: Mapping[str, Any]) -> LockKey:
        """Return the key for ``values``, a mapping of each root name to its value.

        Equal values give one key: a str, int, bool, UUID, date, an aware datetime, or an enum
        member with such a value.

        Raises MissingValue when a name or attribute is not there, NotCanonical, which is a
        ValueError, for a text that is not the one spelling of its value, and TypeError or
        ValueError for a value of another type (None, a Decimal, a container, a model instance:
        use its ``.pk``).
        """

        def filled(match: re.Match[str]) -> str:
            field, _, kind = match[1].partition(":")
            value = _of_kind(field, _plain(field, _look_up(field, values)), kind)
            # quote() never escapes "~", which marks the shortened form of an over-long name.
            return quote(str(value), safe="", errors="surrogatepass").replace("~", "%7E")

        return LockKey(_PLACEHOLDER.sub(filled, self.text), self.untyped)


def template_of(key: str) -> str:
    """Return the template of ``key`` without types, ``order:<pk>``; "" where none is known.

    A key that is not made by a template here is matched with the templates of this process. Of
    several that fit, the template with most text of its own is taken.
    """
    return key.template if isinstance(key, LockKey) else _match(key, len(_known))


# Asked anew when a template is added.
@lru_cache(maxsize=1024)
def _match(key: str, count: int) -> str:
    fitting = [template for template, pattern in list(_known.items()) if pattern.fullmatch(key)]
    return min(fitting, key=lambda text: (-len(_PLACEHOLDER.sub("", text)), text), default="")


def _look_up(field: str, values: Mapping[str, Any]) -> Any:
    root, dot, attributes = field.partition(".")
    if root not in values:
        raise MissingValue(f"<{field}>: there is no {root!r} to take it from")
    try:
        return operator.attrgetter(attributes)(values[root]) if dot else values[root]
    except AttributeError as error:
        raise MissingValue(f"<{field}>: {error}") from None


def _plain(field: str, value: Any) -> Any:
    """Return ``value`` as one whose str() is the same for all equal values."""
    if value is None:
        raise ValueError(f"<{field}> is None, which would give unrelated calls one lock")
    if hasattr(value, "pk"):
        raise TypeError(f"<{field}> is a {type(value).__name__} instance; write <{field}.pk>")
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return value.astimezone(timezone.utc)
    if not isinstance(value, (str, int, UUID, date)) or isinstance(value, datetime):
        naive = "naive " if isinstance(value, datetime) else ""
        raise TypeError(
            f"<{field}> is a {naive}{type(value).__name__}, which does not make one clear key: "
            "name a str, int, UUID, date or aware datetime"
        )
    return value


def _of_kind(field: str, value: Any, kind: str) -> Any:
    """Return ``value`` if it is of the type called ``kind``, or the one text of such a value."""
    if kind in ("", "str"):
        return value
    if not isinstance(value, str):
        if not isinstance(value, TYPES[kind]) or isinstance(value, bool):
            raise TypeError(f"<{field}> is {value!r:.80}, which is no {kind}")
        return value
    try:
        parsed = TYPES[kind](value)
    except ValueError as error:
        raise NotCanonical(f"<{field}> is {value!r:.80}: {error}") from None
    if str(parsed) != value:
        written = f"{str(parsed)!r:.80}"
        raise NotCanonical(f"<{field}> is {value!r:.80}, and has to be written {written}")
    return value
