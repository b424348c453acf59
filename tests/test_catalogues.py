"""The eight texts that visitors see are translated in each catalogue; the others are marked."""

from __future__ import annotations

import gettext
import io
import re
from pathlib import Path

import pytest
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po
from django.template.base import Lexer, TokenType
from django.test import RequestFactory
from django.utils import translation
from django.utils.translation import trans_real

import django_setnx_lock
from django_setnx_lock import LockBusy, LockLost, LockUnavailable
from django_setnx_lock.views import lock_failure

PACKAGE = Path(django_setnx_lock.__file__).parent
LANGUAGES = sorted(path.name for path in (PACKAGE / "locale").iterdir())
_PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
# The attributes that are shown or spoken.
_SPOKEN = re.compile(r'\b(?:alt|aria-label|data-label|data-refresh|placeholder|title)="([^"]*)"')
every_language = pytest.mark.parametrize("language", LANGUAGES)


def read(language: str, suffix: str = ".po") -> dict[str | tuple[str, ...], tuple[str, ...]]:
    """Return the translations of each text, as people write them or (``.mo``) as compiled."""
    source = (PACKAGE / "locale" / language / "LC_MESSAGES" / "django").with_suffix(suffix)
    file = io.BytesIO(source.read_bytes())
    catalogue = read_mo(file) if suffix == ".mo" else read_po(file, locale=language)
    return {
        one.id if isinstance(one.id, str) else tuple(one.id): (
            (one.string,) if isinstance(one.string, str) else tuple(one.string or ())
        )
        for one in catalogue
        if one.id
    }


class _Asked(gettext.NullTranslations):
    """A catalogue that notes which texts it was asked for."""

    domain = "django"

    def __init__(self) -> None:
        super().__init__()
        self.texts: set[str | tuple[str, ...]] = set()

    def gettext(self, message: str) -> str:
        self.texts.add(message)
        return message

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        self.texts.add((msgid1, msgid2))
        return msgid2

    def to_language(self) -> str:
        return "en-us"

    language = to_language


@pytest.fixture
def seen_by_visitors(monkeypatch: pytest.MonkeyPatch) -> set[str | tuple[str, ...]]:
    """Give what all answers say, as a page and as JSON."""
    asked = _Asked()
    monkeypatch.setattr(vars(trans_real)["_active"], "value", asked, raising=False)
    for accept in ("text/html", "application/json"):
        request = RequestFactory().get("/", headers={"accept": accept})
        lock_failure(request, LockBusy("busy", key="a"))
        for error in (LockUnavailable("away", cause="timeout"), LockLost("lost", key="a")):
            lock_failure(request, error)
    return asked.texts


def test_there_are_the_catalogues_that_the_docs_promise() -> None:
    assert LANGUAGES == ["de", "es", "fr", "ja", "pt_BR", "zh_Hans"]


@every_language
def test_a_catalogue_has_what_visitors_see_and_nothing_else(
    seen_by_visitors: set[str | tuple[str, ...]], language: str
) -> None:
    translated = read(language)

    assert len(translated) == 8
    assert set(translated) == seen_by_visitors
    assert [one for one, texts in translated.items() if not all(texts)] == []


@every_language
def test_a_translation_has_the_placeholders_of_its_original(language: str) -> None:
    for original, texts in read(language).items():
        last = original if isinstance(original, str) else original[-1]
        for text in texts:
            assert _PLACEHOLDER.findall(text) == _PLACEHOLDER.findall(last), text


@every_language
def test_the_compiled_catalogue_is_that_of_the_source(language: str) -> None:
    assert read(language, ".mo") == read(language)


@every_language
def test_visitors_read_the_answer_in_their_language(language: str) -> None:
    request = RequestFactory().get("/", headers={"accept": "text/html"})

    with translation.override(translation.to_language(language)):
        page = lock_failure(request, LockBusy("busy", key="a")).content.decode()

    assert f"<title>{read(language)['Busy'][0]}</title>" in page


def unmarked(source: str) -> list[str]:
    """Return the words of a template, in all its branches, that no tag marks for translation."""
    parts: list[str] = []
    is_marked = False
    for token in Lexer(source).tokenize():
        if token.token_type == TokenType.BLOCK:
            tag, *rest = token.contents.split()
            # The block "bodyclass" is a part of an attribute.
            if tag in ("blocktranslate", "plural") or (tag == "block" and rest == ["bodyclass"]):
                is_marked = True
            elif tag in ("endblocktranslate", "endblock"):
                is_marked = False
        elif token.token_type == TokenType.TEXT and not is_marked:
            parts.append(token.contents)
    page = "".join(parts)
    text = " ".join([re.sub(r"<[^>]*>|&\w+;", " ", page), *_SPOKEN.findall(page)])
    return _LETTERS.findall(text)


@pytest.mark.parametrize(
    "template",
    sorted((PACKAGE / "templates").rglob("*.html")),
    ids=lambda path: path.relative_to(PACKAGE / "templates").as_posix(),
)
def test_each_text_of_a_template_is_marked_for_translation(template: Path) -> None:
    assert unmarked(template.read_text("utf-8")) == []
