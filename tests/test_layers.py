"""Imports point downwards only: doors, then the Django layer, then the core."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import django_setnx_lock

PACKAGE = django_setnx_lock.__name__
ROOT = Path(django_setnx_lock.__file__).parent
CORE, DJANGO, DOORS = 0, 1, 2
# Whole modules or packages; the names of the public face are above all.
LAYERS = {
    "core": CORE,
    "conf": DJANGO,
    "async_safety": DJANGO,
    "connection": DJANGO,
    "cluster": DJANGO,
    "bridges": DJANGO,
    "scopes": DJANGO,
    "locks": DJANGO,
    "checks": DJANGO,
    "models": DJANGO,
    "signals": DJANGO,
    "transactions": DJANGO,
    "open_transactions": DJANGO,
    "atomic_requests": DJANGO,
    "migrations": DJANGO,
}
FILES = sorted(ROOT.rglob("*.py"))
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
from django_setnx_lock import RedisLock, LockBusy, LockError, LockLost, LockUnavailable, KeyTemplate
print(RedisLock(None, "lock:a"), KeyTemplate("order:<pk>").format(pk=42))
"""


def dotted(file: Path) -> str:
    """Return the module name of ``file``, such as ``django_setnx_lock.core.lock``."""
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


def imports_of(file: Path) -> set[str]:
    return imports(file.read_text(), dotted(file), is_package=file.name == "__init__.py")


def layer(module: str) -> int:
    return LAYERS.get(module.removeprefix(PACKAGE).strip(".").partition(".")[0], DOORS)


def inside(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith(f"{PACKAGE}.")}


def outside(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("file", FILES, ids=dotted)
def test_imports_point_downwards(file: Path) -> None:
    mine = layer(dotted(file))

    upwards = {name for name in inside(imports_of(file)) if layer(name) > mine}

    assert not upwards


@pytest.mark.parametrize("file", [file for file in FILES if layer(dotted(file)) == CORE], ids=str)
def test_the_core_knows_nothing_of_django(file: Path) -> None:
    assert not outside(imports_of(file)) & {"django", "django_redis"}


def test_only_the_connection_and_the_cluster_module_speak_to_django_redis() -> None:
    speakers = {dotted(file) for file in FILES if "django_redis" in outside(imports_of(file))}

    # The latter is a client class for it.
    assert speakers == {f"{PACKAGE}.connection", f"{PACKAGE}.cluster"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from ..conf import get_config", "django_setnx_lock.conf"),
        ("from .. import conf", "django_setnx_lock.conf"),
        ("from . import lock", "django_setnx_lock.core.lock"),
        ("def f():\n    import django.conf", "django.conf"),
        ("from django_redis import x", "django_redis"),
    ],
)
def test_an_import_is_found_however_it_is_written(source: str, found: str) -> None:
    assert found in imports(source, "django_setnx_lock.core.held", is_package=False)


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
