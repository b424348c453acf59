"""The documented public names, their parameters and defaults, as written in public_names.txt.

A section of that file names what its lines belong to: a module, or one of ``OBJECTS`` below. A
line is a name alone (an attribute, a property, a class that users only catch or receive) or a
signature without annotations. A name that is added need not be written there; one that goes, and
a parameter or default that changes, breaks the code of users.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from django.core.management import load_command_class
from django.template.loader import get_template

import django_setnx_lock
from django_setnx_lock import RedisLock, Redlock, lock, lock_all, rwlock
from django_setnx_lock.conf import DEFAULTS
from django_setnx_lock.locks import inspector
from django_setnx_lock.testing import LockTester

LISTED = Path(__file__).with_name("public_names.txt").read_text()


def handle(key: str, *more: str) -> Any:
    """Return what ``with lock(...) as held`` gives."""
    with LockTester(leftovers="ignore"), lock(key, *more) as held:
        return held


# The classes of what these return may be anywhere in the package.
OBJECTS: dict[str, Callable[[], Any]] = {
    "a lock": lambda: lock("a"),
    "a lock of several keys": lambda: lock_all(["a", "b"]),
    "a lock of readers and writers": lambda: rwlock("a"),
    "a Redlock": lambda: Redlock.__new__(Redlock),
    "a handle": lambda: handle("a"),
    "a handle of several keys": lambda: handle("a", "b"),
    "an inspector": inspector,
    "a held lock that was looked at": lambda: next(looked_at()),
    "a lock without Django": lambda: RedisLock(None, "lock:a"),
}


def looked_at() -> Iterator[Any]:
    """Yield what an inspector tells of a lock that is held."""
    with LockTester(), lock("a"):
        yield inspector().get("lock:a")


def sections() -> dict[str, list[str]]:
    """Return the lines of each section of the list."""
    found: dict[str, list[str]] = {}
    for line in LISTED.splitlines():
        if line.startswith("["):
            lines = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return found


SECTIONS = sections()


def is_owner(section: str) -> bool:
    return section in OBJECTS or section.startswith(django_setnx_lock.__name__)


def owner(section: str) -> Any:
    return OBJECTS[section]() if section in OBJECTS else import_module(section)


def written(name: str, found: Any) -> str:
    """Return the line for ``found``: the parameters and defaults of what can be called."""
    signature = inspect.signature(found)
    bare = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return name + str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def found_for(line: str, owner: Any) -> str:
    """Return what the list would have to say of the name in ``line``."""
    name = line.partition("(")[0]
    try:
        found = attrgetter(name)(owner)
    except AttributeError:
        return f"{name} is missing"
    return written(name, found) if "(" in line else name


@pytest.mark.parametrize("section", [one for one in SECTIONS if is_owner(one)])
def test_public_names_are_there_with_their_parameters_and_defaults(section: str) -> None:
    has_them = owner(section)

    assert [found_for(line, has_them) for line in SECTIONS[section]] == SECTIONS[section]


def test_the_package_has_the_listed_names_and_no_others() -> None:
    listed = {line.partition("(")[0] for line in SECTIONS[django_setnx_lock.__name__]}

    assert {name for name in listed if "." not in name} == set(django_setnx_lock.__all__)


def test_settings_have_the_listed_defaults() -> None:
    assert [f"{name} = {default!r}" for name, default in DEFAULTS.items()] == SECTIONS["settings"]


@pytest.mark.parametrize("template", SECTIONS["templates"])
def test_a_template_that_projects_override_is_there(template: str) -> None:
    get_template(template)


@pytest.mark.parametrize("line", SECTIONS["commands"], ids=lambda line: line.partition(":")[0])
def test_a_command_has_the_listed_options(line: str) -> None:
    words, _, options = line.partition(":")
    command, *subcommands = words.split()
    parser: argparse.ArgumentParser = load_command_class(
        django_setnx_lock.__name__, command
    ).create_parser("manage.py", command)
    for word in subcommands:
        parser = next(
            action.choices[word]
            for action in parser._actions
            if isinstance(action, argparse._SubParsersAction)
        )

    known = {name for action in parser._actions for name in action.option_strings}

    assert set(options.split()) <= known


@pytest.mark.parametrize("line", SECTIONS["errors"])
def test_an_error_is_caught_by_the_listed_classes(line: str) -> None:
    name, _, bases = line.partition(": ")
    known = {
        f"{one.__module__}.{one.__qualname__}".removeprefix("builtins.")
        for one in getattr(django_setnx_lock, name).__mro__
    } | {one.__name__ for one in getattr(django_setnx_lock, name).__mro__}

    assert set(bases.split(", ")) <= known
