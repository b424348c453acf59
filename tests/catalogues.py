"""The strings of the package that are to be translated, and its catalogues.

It reads the sources itself: gettext is needed to write catalogues (``make messages``), not to test
them. As a program it ends ``make messages``: it lists what is not translated.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from babel.messages.catalog import Catalog
from babel.messages.catalog import Message as Entry
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po
from django.utils.translation.template import templatize

PACKAGE = Path(__file__).resolve().parent.parent / "django_setnx_lock"
LOCALE = PACKAGE / "locale"
LANGUAGES = sorted(path.name for path in LOCALE.iterdir())

# For each function of gettext's: which of its arguments are the context, and the text.
_PLAIN, _PLURAL = (None, slice(0, 1)), (None, slice(0, 2))
_FUNCTIONS: dict[str, tuple[int | None, slice]] = {
    "_": _PLAIN,
    "gettext": _PLAIN,
    "gettext_noop": _PLAIN,
    "gettext_lazy": _PLAIN,
    "ngettext": _PLURAL,
    "ngettext_lazy": _PLURAL,
    "pgettext": (0, slice(1, 2)),
    "pgettext_lazy": (0, slice(1, 2)),
    "npgettext": (0, slice(1, 3)),
    "npgettext_lazy": (0, slice(1, 3)),
}
# A call in what templatize() returns, which is no Python otherwise.
_CALL = re.compile(r"\b(?:_|(?:n?p?)gettext)\(")


class Message(NamedTuple):
    """A text that is to be translated; of a plural ``ids`` has two."""

    ids: tuple[str, ...]
    context: str | None = None

    def __str__(self) -> str:
        return " | ".join(self.ids) + (f" ({self.context})" if self.context else "")


@functools.cache
def marked() -> frozenset[Message]:
    """Return what the code and the templates of the package mark for translation."""
    found: set[Message] = set()
    for path in PACKAGE.rglob("*.py"):
        found.update(_in_python(ast.parse(path.read_text("utf-8"))))
    for path in (PACKAGE / "templates").rglob("*.html"):
        found.update(in_template(path.read_text("utf-8")))
    return frozenset(found)


def in_template(source: str) -> Iterator[Message]:
    """Yield what a template marks for translation."""
    code = templatize(source)
    for call in _CALL.finditer(code):
        # Up to the first bracket with which it is an expression.
        for end in re.finditer(r"\)", code[call.start() :]):
            try:
                tree = ast.parse(code[call.start() : call.start() + end.end()], mode="eval")
            except SyntaxError:
                continue
            yield from _in_python(tree)
            break


def _in_python(tree: ast.AST) -> Iterator[Message]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _FUNCTIONS and node.args:
            context, texts = _FUNCTIONS[name]
            ids = tuple(str(ast.literal_eval(one)) for one in node.args[texts])
            yield Message(ids, None if context is None else ast.literal_eval(node.args[context]))


def po_file(language: str) -> Path:
    """Return where the catalogue of that language is."""
    return LOCALE / language / "LC_MESSAGES" / "django.po"


def read(language: str) -> Catalog:
    """Return the catalogue that people write."""
    return read_po(io.BytesIO(po_file(language).read_bytes()), locale=language)


def read_compiled(language: str) -> Catalog:
    """Return the catalogue that programs read."""
    return read_mo(io.BytesIO(po_file(language).with_suffix(".mo").read_bytes()))


def texts(entry: Entry) -> tuple[str, ...]:
    """Return the translation, of a plural in each of its forms."""
    return (entry.string,) if isinstance(entry.string, str) else tuple(entry.string or ())


def entries(catalogue: Catalog) -> dict[Message, Entry]:
    """Return the entries of a catalogue, without its header."""
    found: dict[Message, Entry] = {}
    for one in catalogue:
        # Babel leaves the context of a compiled one as it is in the file.
        context: str | bytes | None = one.context
        if isinstance(context, bytes):
            context = context.decode()
        if one.id:
            ids = (one.id,) if isinstance(one.id, str) else tuple(one.id)
            found[Message(ids, context)] = one
    return found


def missing(catalogue: Catalog) -> list[Message]:
    """Return what ``catalogue`` lacks of what is marked: it is not there, not all or not sure."""
    has = {
        message
        for message, entry in entries(catalogue).items()
        if len(texts(entry)) == (catalogue.num_plurals if len(message.ids) > 1 else 1)
        and all(texts(entry))
        and not entry.fuzzy
    }
    return sorted(marked() - has, key=str)


def main() -> int:
    """List what is missing in each catalogue; return if there is anything."""
    is_missing = False
    for language in LANGUAGES:
        lacks = missing(read(language))
        is_missing = is_missing or bool(lacks)
        sys.stdout.write(f"{language}: {f'{len(lacks)} missing' if lacks else 'complete'}\n")
        for message in lacks:
            sys.stdout.write(f"    {message}\n")
    return int(is_missing)


if __name__ == "__main__":
    sys.exit(main())
