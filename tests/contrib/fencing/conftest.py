from __future__ import annotations

import importlib
import importlib.util
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.db import connections

from tests import databases
from tests.mariadb import MariaDBServer
from tests.postgres.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from django.db.models import Model
    from pytest_django import DjangoDbBlocker


# Nothing has to outlive the machine.
QUICK = "PRAGMA synchronous=OFF"


def sqlite(path: Path, stack: ExitStack) -> dict[str, Any]:
    options = {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": QUICK}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": path / "rows", "OPTIONS": options}


def postgres(path: Path, stack: ExitStack) -> dict[str, Any]:
    if not importlib.util.find_spec("psycopg"):
        pytest.skip("psycopg is not installed")
    return stack.enter_context(PostgresServer()).database


def mariadb(path: Path, stack: ExitStack) -> dict[str, Any]:
    if not importlib.util.find_spec("MySQLdb"):
        if not importlib.util.find_spec("pymysql"):
            pytest.skip("neither mysqlclient nor PyMySQL is installed")
        pymysql: Any = importlib.import_module("pymysql")
        # What Django asks of mysqlclient, which it takes this for.
        pymysql.version_info = (2, 2, 1, "final", 0)
        pymysql.install_as_MySQLdb()
    return stack.enter_context(MariaDBServer()).database


KINDS = {"sqlite": sqlite, "postgres": postgres, "mariadb": mariadb}


@pytest.fixture(scope="session")
def running_database(
    tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker
) -> Iterator[Callable[[str], str]]:
    """Give the alias of a database of a kind, started with its tables when first asked for."""
    with ExitStack() as stack:
        known = set()

        def running(kind: str) -> str:
            if kind not in known:
                given = KINDS[kind](tmp_path_factory.mktemp(kind), stack)
                databases.add(kind, given)
                stack.callback(databases.remove, kind)
                make_tables(kind)
                known.add(kind)
            return kind

        with django_db_blocker.unblock():
            yield running


def tables() -> list[type[Model]]:
    models = apps.get_app_config("fencing").get_models()
    return [model for model in models if not model._meta.proxy]


def make_tables(alias: str) -> None:
    with connections[alias].schema_editor() as editor:
        for model in tables():
            editor.create_model(model)


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.matrix)])
def database(
    request: pytest.FixtureRequest,
    running_database: Callable[[str], str],
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[str]:
    """Give the alias of a database of each kind in turn, its tables empty."""
    alias = running_database(request.param)
    with django_db_blocker.unblock():
        for model in reversed(tables()):
            model._base_manager.using(alias)._raw_delete(alias)
        yield alias
