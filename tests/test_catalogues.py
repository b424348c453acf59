"""The catalogues of the pages: complete, right in form, and compiled."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from babel.messages.pofile import read_po
from django.utils import translation

from django_setnx_lock.models import Lock
from tests.catalogues import (
    LANGUAGES,
    PACKAGE,
    Message,
    entries,
    in_template,
    marked,
    missing,
    read,
    read_compiled,
    texts,
)

_PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]|%[a-z]|\{\w*\}")
every_language = pytest.mark.parametrize("language", LANGUAGES)


def placeholders(text: str) -> list[str]:
    return sorted(_PLACEHOLDER.findall(text))


def test_there_are_the_catalogues_that_the_docs_promise() -> None:
    assert LANGUAGES == ["de", "es", "fr", "ja", "pt_BR", "zh_Hans"]


@every_language
def test_a_catalogue_has_every_marked_string(language: str) -> None:
    # `make messages` adds them, and lists what is to be translated then.
    assert missing(read(language)) == []


@every_language
def test_a_catalogue_has_no_string_that_is_marked_no_longer(language: str) -> None:
    assert set(entries(read(language))) - marked() == set()


@every_language
def test_a_translation_has_the_placeholders_of_its_original(language: str) -> None:
    for message, entry in entries(read(language)).items():
        for text in texts(entry):
            assert placeholders(text) == placeholders(message.ids[-1]), text


@every_language
def test_a_translation_ends_as_its_original_does(language: str) -> None:
    # A sentence with a full stop, a button with an ellipsis, and none with a space.
    for message, entry in entries(read(language)).items():
        last = message.ids[-1][-1]
        for text in texts(entry):
            assert text == text.strip()
            assert (text[-1] == "…") == (last == "…"), text
            assert (text[-1] in ".。") == (last == ".") or last == "?", text


@every_language
def test_a_catalogue_has_a_glossary(language: str) -> None:
    words = ["lock", "lease", "holder", "waiter", "queue", "fence", "token"]
    words += ["to force-release", "to ask to stop"]
    comment = read(language).header_comment

    assert [word for word in words if f"# {word}: " not in comment] == []


@every_language
def test_the_compiled_catalogue_is_that_of_the_source(language: str) -> None:
    compiled = entries(read_compiled(language))

    # Of a plural, the compiled one has no more than the source: its forms.
    assert {message: texts(entry) for message, entry in compiled.items()} == {
        message: texts(entry) for message, entry in entries(read(language)).items()
    }


@every_language
def test_django_finds_the_catalogue(language: str) -> None:
    with translation.override(translation.to_language(language)):
        said = str(Lock._meta.verbose_name_plural)

    (own,) = texts(entries(read(language))[Message(("locks",))])
    assert said == own != "locks"


@pytest.mark.parametrize("spoilt", ["emptied", "guessed", "half a plural", "left out"])
def test_a_catalogue_with_a_gap_is_not_complete(spoilt: str) -> None:
    catalogue = read("de")
    message = next(one for one in entries(catalogue) if len(one.ids) == 2)
    entry = entries(catalogue)[message]
    if spoilt == "emptied":
        entry.string = ("", "")
    elif spoilt == "guessed":
        entry.flags.add("fuzzy")
    elif spoilt == "half a plural":
        entry.string = (texts(entry)[0], "")
    else:
        catalogue.delete(entry.id, entry.context)

    assert missing(catalogue) == [message]


def test_what_a_template_marks_is_found() -> None:
    template = """{% load i18n %}<p title="{% translate "One (1)" %}">
    {% translate 'Two' context "number" %}{# {% translate "None" %} #}
    {% blocktranslate with a=b %}Three {{ a }}{% endblocktranslate %}
    {% blocktranslate count n=n %}{{ n }} four{% plural %}{{ n }} fours{% endblocktranslate %}
    {% blocktranslate trimmed %}
      Five,
      “six”
    {% endblocktranslate %}</p>"""

    assert set(in_template(template)) == {
        Message(("One (1)",)),
        Message(("Two",), "number"),
        Message(("Three %(a)s",)),
        Message(("%(n)s four", "%(n)s fours")),
        Message(("Five, “six”",)),
    }


@pytest.mark.skipif(shutil.which("xgettext") is None, reason="GNU gettext is not installed")
def test_gettext_finds_the_same_strings(tmp_path: Path) -> None:
    copy = tmp_path / "package"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("locale", "__pycache__"))
    (copy / "locale" / "de").mkdir(parents=True)

    subprocess.run(
        [sys.executable, "-m", "django", "makemessages", "--all"],
        cwd=copy,
        env={"PATH": os.environ["PATH"]},
        check=True,
        capture_output=True,
        timeout=50,
    )

    with (copy / "locale" / "de" / "LC_MESSAGES" / "django.po").open("rb") as file:
        assert set(entries(read_po(file))) == marked()
