"""Key templates: ``"order:<pk>"`` with values filled in so that two calls never share a key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

_PLACEHOLDER = re.compile(r"<([^<>]*)>")
_FIELD = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_HASH_TAG = re.compile(r"[^{}]*\{[^{}]+\}")
# How values are written elsewhere; alone, "{tag}" is one key for all too.
_OTHER_SYNTAX = re.compile(r"\{\w*\}|%\(?\w")
# What quote() leaves as it is; "%" is how it writes the rest. No value can have anything else.
_IN_A_VALUE = re.compile(r"[A-Za-z0-9_.%-]")


class MissingValue(LookupError):
    """A template names something that it was not given."""


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """A lock key with places for values: ``KeyTemplate("order:<pk>").format(pk=42)``.

    ``<name>`` is one value, ``<name.attribute>`` an attribute of it. Values are
    percent-encoded, so that none can reach into the next one or add a hash tag.

    Raises ValueError for a template that is empty or malformed, or in which two values
    stand side by side with nothing between them that cannot be part of a value (``:``).
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
        for field in self.fields:
            if not _FIELD.match(field):
                raise ValueError(
                    f"<{field}> in the key template {self.text!r} is no name: write for example "
                    "<pk>, without a converter"
                )
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
            if not _IN_A_VALUE.sub("", between):
                raise ValueError(
                    f"two values of the key template {self.text!r} could run into each other; "
                    'put a ":" between them'
                )

    @property
    def fields(self) -> tuple[str, ...]:
        """The names between the angle brackets, dots included, in order."""
        return tuple(_PLACEHOLDER.findall(self.text))

    @property
    def roots(self) -> frozenset[str]:
        """The names that must be given: each field up to its first dot."""
        return frozenset(field.partition(".")[0] for field in self.fields)

    def format(self, /, **values: Any) -> str:
        """The key for ``values``. Raises as :meth:`resolve` does."""
        return self.resolve(values)

    def resolve(self, values: Mapping[str, Any]) -> str:
        """The key for ``values``, a mapping of each root name to its value.

        Raises MissingValue when a name or attribute is not there, and TypeError or
        ValueError for a value whose text does not identify it (None, a float, a container,
        a model instance: use its ``.pk``).
        """
        return _PLACEHOLDER.sub(
            lambda match: _encode(match[1], _look_up(match[1], values)), self.text
        )


def _look_up(field: str, values: Mapping[str, Any]) -> Any:
    root, *attributes = field.split(".")
    if root not in values:
        raise MissingValue(f"<{field}>: there is no {root!r} to take it from")
    value = values[root]
    for name in attributes:
        try:
            value = getattr(value, name)
        except AttributeError as error:
            raise MissingValue(f"<{field}>: {error}") from None
    return value


def _encode(field: str, value: Any) -> str:
    if value is None:
        raise ValueError(f"<{field}> is None, which would give unrelated calls one lock")
    if not isinstance(value, str):
        _refuse_ambiguous(field, value)
    # quote() never escapes "~", which marks the shortened form of an over-long name.
    return quote(str(value), safe="", errors="surrogatepass").replace("~", "%7E")


def _refuse_ambiguous(field: str, value: Any) -> None:
    kind = type(value)
    if hasattr(value, "pk"):
        raise TypeError(f"<{field}> is a {kind.__name__} instance; write <{field}.pk>")
    if isinstance(value, (float, complex, bytes, bytearray, list, tuple, set, frozenset, dict)):
        raise TypeError(f"<{field}> is a {kind.__name__}, which does not make one clear key")
    if callable(value):
        raise TypeError(f"<{field}> is callable; name a value")
    text = str(value)
    if text.startswith("<") and text.endswith(">"):
        raise TypeError(
            f"<{field}> is a {kind.__name__} without a text of its own; write <{field}.something>"
        )
