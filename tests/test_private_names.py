"""What no linter sees: that its list of private modules is whole, and what stands in strings."""

from __future__ import annotations

import ast
import functools
import pkgutil
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import django_setnx_lock
from django_setnx_lock import core

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomllib")

TESTS = Path(__file__).parent
RUFF: dict[str, Any] = tomllib.loads((TESTS / "ruff.toml").read_text(encoding="utf-8"))["lint"]
# Those that may name what is private, and the others, which are to follow.
EXCEPT = tuple(
    name.rstrip("*") for name, rules in RUFF["extend-per-file-ignores"].items() if "TID251" in rules
)
PUBLIC = {
    "admin",
    "apps",
    "cluster",
    "contrib",
    "contrib.celery",
    "contrib.fencing",
    "contrib.opentelemetry",
    "contrib.prometheus",
    "contrib.rest_framework",
    "core",
    "management",
    "management.commands",
    "management.statuses",
    "middleware",
    "models",
    "options",
    "signals",
    "testing",
    "views",
}
ATTRIBUTES = {"grant", "lease", "on_trouble", "target"}
METHODS = {"attempt", "finish"}
# Loggers, which are public, that have the name of a module.
LOGGERS = {"history"}
# As in the text of a program that a test starts.
DOTTED = re.compile(r"\bdjango_setnx_lock\.([a-z_]+(?:\.[a-z_]+)*)")
IMPORTED = re.compile(r"\bfrom django_setnx_lock(?:\.([a-z_.]+))? import ([\w, ]+)")


def modules() -> list[str]:
    found = pkgutil.walk_packages(
        django_setnx_lock.__path__, "django_setnx_lock.", onerror=lambda name: None
    )
    return [one.name.removeprefix("django_setnx_lock.") for one in found]


@functools.cache
def private_modules() -> set[str]:
    """Return the modules that are not public; what is below one is, too, and is not named."""
    private = {name for name in modules() if name not in PUBLIC and "migrations" not in name}
    return {name for name in private if name.rpartition(".")[0] not in private}


def files() -> list[Path]:
    names = [path.relative_to(TESTS) for path in sorted(TESTS.rglob("*.py"))]
    return [name for name in names if not str(name).startswith(EXCEPT)]


def private_names(source: str) -> list[str]:
    """Return the private names in ``source`` that ruff does not see, each with its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in METHODS:
                found.append(f"{node.lineno}: .{node.func.attr}()")
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            found.append(f"{node.lineno}: .{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [f"{node.lineno}: {name}" for name in private_in(node.value)]
    return found


def private_in(text: str) -> list[str]:
    names = {*DOTTED.findall(text)} - LOGGERS
    for module, imported in IMPORTED.findall(text):
        names |= {f"{module}.{name}".strip(".") for name in re.findall(r"\w+", imported)}
    private = private_modules()
    return sorted(
        name for name in names if any(f"{name}.".startswith(f"{one}.") for one in private)
    )


def test_the_linter_knows_each_private_module() -> None:
    banned = RUFF["flake8-tidy-imports"]["banned-api"]
    assert [name for name in private_modules() if f"django_setnx_lock.{name}" not in banned] == []


def test_no_test_names_what_is_private() -> None:
    for source in ("held.lease.end", "'django_setnx_lock.core.clock.now'"):
        assert private_names(source)
    found = {str(name): private_names((TESTS / name).read_text()) for name in files()}
    assert {name: names for name, names in found.items() if names} == {}


def test_what_the_core_shows_is_public() -> None:
    assert private_in(f"from django_setnx_lock.core import {', '.join(core.__all__)}") == []
