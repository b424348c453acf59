"""Imports point downwards only: doors, then the Django layer, then the core."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import django_setnx_lock

PACKAGE = django_setnx_lock.__name__
ROOT = Path(django_setnx_lock.__file__).parent
CORE = f"{PACKAGE}.core"
FILES = sorted(ROOT.rglob("*.py"))
EXAMPLE = sorted((ROOT.parent / "example_project").rglob("*.py"))
# What a plain lock is. What it can do besides are layers, in that folder and in others.
PLAIN = {
    *("__init__", "lock", "local", "attempt", "mailbox", "grant", "handle", "renewal"),
    *("operations", "heartbeat"),
}
LAYERS = {
    f"{CORE}.{name}"
    for name in (
        *("inspection", "protocol.kinds"),
        *("connections.sentinel", "connections.quorum", "connections.cluster"),
    )
}
# What no name in a plain lock speaks of.
OF_LAYERS = (
    *("sentinel", "cluster", "redlock", "timestamp", "hosted", "transfer", "parent", "deadlock"),
    *("replicas", "inspection"),
)
# Every lock can be given this option, which a layer reads.
PASSED_ON = {"deadlock_timeout"}
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


@functools.cache
def imports_of(file: Path) -> set[str]:
    """Return every module that ``file`` imports anywhere, in full."""
    module = dotted(file)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            origin = ".".join([*(base if node.level else []), *filter(None, [node.module])])
            # A name may be a module too.
            found |= {origin} | {f"{origin}.{alias.name}" for alias in node.names}
    return found


def inside(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith(f"{PACKAGE}.")}


def outside(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def room(module: str) -> str:
    """Return the folder of the package, or of its core, that ``module`` is in; "" for none."""
    parts = module.split(".")[1:]
    depth = 2 if parts[:1] == ["core"] else 1
    is_folder = len(parts) >= depth and ROOT.joinpath(*parts[:depth]).is_dir()
    return ".".join(parts[:depth]) if is_folder else ""


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


def test_a_circle_would_be_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b", "c"}


@pytest.mark.parametrize("files", [FILES, EXAMPLE], ids=["the package", "the example project"])
def test_no_files_import_one_another_in_a_circle(files: list[Path]) -> None:
    names = {dotted(file) for file in files}

    assert circles({dotted(file): modules_that_are_meant(file, names) for file in files}) == set()


def test_no_rooms_import_one_another_in_a_circle() -> None:
    arrows: dict[str, set[str]] = {}
    files = {dotted(file) for file in FILES}
    for file in FILES:
        here = room(dotted(file))
        arrows.setdefault(here, set()).update(map(room, modules_that_are_meant(file, files)))
    del arrows[""]

    assert circles({here: there - {here, ""} for here, there in arrows.items()}) == set()


def floors(arrows: dict[str, set[str]]) -> int:
    """Return how many floors a house has whose rooms stand above all that they import."""
    height: dict[str, int] = {}
    while left := arrows.keys() - height.keys():
        height |= {
            here: 1 + max((height[there] for there in arrows[here] - {here}), default=0)
            for here in left
            if arrows[here] - {here} <= height.keys()
        }
    return max(height.values())


def test_the_core_is_of_ten_rooms_on_six_floors() -> None:
    files = {dotted(file) for file in FILES}
    arrows: dict[str, set[str]] = {}
    for file in FILES:
        # What a package shows is no room.
        if dotted(file).startswith(f"{CORE}."):
            here = dotted(file).split(".")[2]
            found = modules_that_are_meant(file, files) - {CORE}
            arrows.setdefault(here, set()).update(one.split(".")[2] for one in found)

    assert circles({here: there - {here} for here, there in arrows.items()}) == set()
    assert len(arrows) <= 10
    assert floors(arrows) <= 6


def test_nothing_below_the_doors_imports_a_door() -> None:
    doors = {room(dotted(file)) for file in FILES if not dotted(file).startswith(CORE)}
    doors -= {"", "migrations"}
    below = [file for file in FILES if room(dotted(file)) not in doors]

    assert len(doors) > 3
    assert {
        (dotted(file), name)
        for file in below
        for name in inside(imports_of(file))
        if room(name) in doors
    } == set()


def test_the_core_knows_nothing_of_what_is_above_it_nor_of_django() -> None:
    core = [file for file in FILES if dotted(file).startswith(CORE)]

    assert core
    assert not [name for file in core for name in inside(imports_of(file)) if CORE not in name]
    assert not [file for file in core if outside(imports_of(file)) & {"django", "django_redis"}]


def test_only_the_connection_and_the_cluster_module_speak_to_django_redis() -> None:
    speakers = {dotted(file) for file in FILES if "django_redis" in outside(imports_of(file))}

    # The latter is a client class for it.
    assert speakers == {f"{PACKAGE}.connection", f"{PACKAGE}.cluster"}


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


def test_the_plain_lock_knows_none_of_its_layers() -> None:
    locks = {file.stem: file for file in ROOT.joinpath("core", "locks").glob("*.py")}
    layers = LAYERS | {dotted(file) for name, file in locks.items() if name not in PLAIN}

    assert locks.keys() > PLAIN
    assert layers & {dotted(file) for file in FILES} == layers
    assert {
        (name, module) for name in PLAIN for module in imports_of(locks[name]) if module in layers
    } == set()


def names_of_layers(source: str) -> set[str]:
    """Return the names in ``source`` that speak of a layer; texts and comments may do so."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        fields = (getattr(node, kind, None) for kind in ("id", "attr", "arg", "name", "module"))
        names |= {name for name in fields if isinstance(name, str)}
    return {name for name in names - PASSED_ON if any(layer in name.lower() for layer in OF_LAYERS)}


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_a_plain_lock_speaks_of_no_layer(name: str) -> None:
    file = ROOT.joinpath("core", "locks", f"{name}.py")

    assert names_of_layers(file.read_text()) == set()
