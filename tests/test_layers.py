"""Imports point downwards only: doors, then the Django layer, then the core."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import django_setnx_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = django_setnx_lock.__name__
ROOT = Path(django_setnx_lock.__file__).parent
# From the ground up. A module or package imports those of lower floors only: none beside it, and
# nothing of the public face.
FLOORS = (
    {"core"},
    {
        *("conf", "cluster", "key_template", "async_support", "leftovers", "signals"),
        *("descriptions", "arguments", "lock_fields"),
    },
    {"connection", "transactions", "models", "migrations"},
    {"locks", "responses"},
    {"decorators"},
    {"checks"},
    {"admin", "contrib", "testing"},
    {"management"},
    {"apps"},
)
# The same within the core. The files of its ground floor may import one another.
CORE_FLOORS = (
    {
        "errors",
        "holder",
        "clock",
        "events",
        "plain",
        "docs",
        "liveness",
        "stop_request",
        "fingerprint",
        "lock_filter",
    },
    {"protocol"},
    {"connections"},
    {"renewal", "history"},
    {"locks", "inspection", "aio"},
    {"wait_graph"},
)
FILES = sorted(ROOT.rglob("*.py"))
EXAMPLE = sorted((ROOT.parent / "example_project").rglob("*.py"))
WITHOUT_DJANGO = """
import importlib.abc, pkgutil, sys

class Refusing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"django", "django_redis"}:
            raise ImportError(f"{name} is blocked")
        return None

sys.meta_path.insert(0, Refusing())
try:
    import django
except ImportError:
    pass
else:
    sys.exit("the block does not hold")

import django_setnx_lock.core
for module in pkgutil.walk_packages(django_setnx_lock.core.__path__, "django_setnx_lock.core."):
    __import__(module.name)
from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable, KeyTemplate
from django_setnx_lock.core import RedisLock
print(RedisLock(None, "lock:a"), KeyTemplate("order:<pk>").format(pk=42))
"""


def dotted(file: Path) -> str:
    """Return the module name of ``file``, such as ``django_setnx_lock.core.locks.lock``."""
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, module: str, *, is_package: bool) -> set[str]:
    """Return every module that ``source`` imports anywhere, in full."""
    package = module if is_package else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            origin = ".".join([*(base if node.level else []), *filter(None, [node.module])])
            # A name may be a module too.
            found |= {origin} | {f"{origin}.{alias.name}" for alias in node.names}
    return found


@functools.cache
def imports_of(file: Path) -> set[str]:
    return imports(file.read_text(), dotted(file), is_package=file.name == "__init__.py")


def room(module: str) -> str:
    return module.removeprefix(PACKAGE).strip(".").partition(".")[0]


def floor(room: str, floors: Sequence[set[str]] = FLOORS) -> int:
    """Return the number of the floor; the public face, and what is not listed, is above all."""
    return next((number for number, rooms in enumerate(floors) if room in rooms), len(floors))


def inside(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith(f"{PACKAGE}.")}


def outside(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_imports_point_downwards() -> None:
    arrows = {(dotted(file), name) for file in FILES for name in inside(imports_of(file))}

    assert not {
        (module, name)
        for module, name in arrows
        if room(module) != room(name) and floor(room(name)) >= floor(room(module))
    }


# What each part of the management commands imports of the others.
COMMANDS: dict[str, set[str]] = {
    "statuses": set(),
    "wording": set(),
    "mixins": {"statuses", "wording"},
    "with_lock": {"statuses", "wording"},
    "locks": {"statuses", "wording"},
    "commands": {"statuses", "wording", "with_lock", "locks"},
}


@pytest.mark.parametrize("part", COMMANDS)
def test_the_two_commands_know_nothing_of_each_other(part: str) -> None:
    parts = f"{PACKAGE}.management."
    files = [file for file in FILES if f"{dotted(file)}.".startswith(f"{parts}{part}.")]
    imported = {
        name.removeprefix(parts).partition(".")[0]
        for file in files
        for name in imports_of(file)
        if name.startswith(parts)
    }

    assert imported - {part} == COMMANDS[part]


def test_every_part_of_the_commands_has_its_place() -> None:
    assert {file.stem for file in (ROOT / "management").iterdir() if file.stem[0] != "_"} == {
        *COMMANDS
    }


def points_upwards(module: str, other: str) -> bool:
    """Return whether ``module`` of the core may not import ``other``, of the core as well."""
    mine, its = (one.partition(".")[0] for one in (module, other))
    below, above = floor(mine, CORE_FLOORS), floor(its, CORE_FLOORS)
    return above > below or (above == below > 0 and mine != its)


def test_imports_within_the_core_point_downwards() -> None:
    core = f"{PACKAGE}.core."
    files = {dotted(file).removeprefix(core): file for file in FILES if core in dotted(file)}
    arrows = {
        (module, other)
        for module, file in files.items()
        for other in files.keys() & {name.removeprefix(core) for name in imports_of(file)}
    }

    assert not {arrow for arrow in arrows if points_upwards(*arrow)}


def circles(arrows: dict[str, set[str]]) -> set[str]:
    """Return the modules that import one another in a circle, by ``arrows`` from each to others."""
    left = dict(arrows)
    # Those that import nothing of the rest are in none.
    while ends := {one for one, others in left.items() if not others & left.keys()}:
        left = {one: others for one, others in left.items() if one not in ends}
    while starts := left.keys() - set().union(*left.values()):
        left = {one: others for one, others in left.items() if one not in starts}
    return set(left)


def modules_that_are_meant(file: Path, files: set[str]) -> set[str]:
    """Return which of ``files`` a file imports: of ``from . import conf`` only ``conf``."""
    found = imports_of(file) & files - {dotted(file)}
    return {one for one in found if not any(other.startswith(f"{one}.") for other in found)}


@pytest.mark.parametrize("files", [FILES, EXAMPLE], ids=["the package", "the example project"])
def test_no_files_import_one_another_in_a_circle(files: list[Path]) -> None:
    names = {dotted(file) for file in files}

    assert circles({dotted(file): modules_that_are_meant(file, names) for file in files}) == set()


def test_a_circle_would_be_seen() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}

    assert circles(arrows) == {"b", "c"}


def test_every_room_is_on_a_floor() -> None:
    names = {dotted(file) for file in FILES}

    assert {room(name) for name in names} - {""} == set().union(*FLOORS)
    rooms = {name.split(".")[2] for name in names if name.startswith(f"{PACKAGE}.core.")}
    assert rooms == set().union(*CORE_FLOORS)


@pytest.mark.parametrize(
    ("module", "other", "is_wrong"),
    [
        ("renewal.lease", "locks.grant", True),
        ("inspection", "locks.grant", True),
        ("errors", "protocol.keys", True),
        ("locks.grant", "renewal.lease", False),
        ("errors", "holder", False),
    ],
)
def test_an_arrow_within_the_core_may_point_downwards_only(
    module: str, other: str, is_wrong: bool
) -> None:
    assert points_upwards(module, other) is is_wrong


def test_the_core_knows_nothing_of_django() -> None:
    core = [file for file in FILES if room(dotted(file)) == "core"]

    assert core
    assert not [file for file in core if outside(imports_of(file)) & {"django", "django_redis"}]


def test_only_the_connection_and_the_cluster_module_speak_to_django_redis() -> None:
    speakers = {dotted(file) for file in FILES if "django_redis" in outside(imports_of(file))}

    # The latter is a client class for it.
    assert speakers == {f"{PACKAGE}.connection", f"{PACKAGE}.cluster"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from ...conf import get_config", "django_setnx_lock.conf"),
        ("from ... import conf", "django_setnx_lock.conf"),
        ("from . import lock", "django_setnx_lock.core.locks.lock"),
        ("def f():\n    import django.conf", "django.conf"),
        ("from django_redis import x", "django_redis"),
    ],
)
def test_an_import_is_found_however_it_is_written(source: str, found: str) -> None:
    assert found in imports(source, "django_setnx_lock.core.locks.handle", is_package=False)


def test_the_core_works_where_django_cannot_be_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DJANGO],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.stderr == ""
    assert done.stdout == "<RedisLock 'lock:a' timeout=30> order:42\n"
