from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.utils import NotSupportedError
from django.test import override_settings

from example_project.shop.models import Order
from tests.postgres.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper
    from pytest_django.plugin import DjangoDbBlocker

ALIAS, WHOLE = "orders", "whole"
# A commit that takes its time, as one that waits for a replica's disk does.
SLOW_COMMIT = """
CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(0.002); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON shop_order
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION take_time();
"""


@pytest.fixture(scope="session")
def postgres_server(django_db_setup: None) -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with PostgresServer() as server:
        yield server


@contextlib.contextmanager
def connected(
    alias: str, server: PostgresServer, blocker: DjangoDbBlocker
) -> Iterator[BaseDatabaseWrapper]:
    """Have ``alias`` be a database there. Not for tests with ``django_db``, of other databases."""
    settings = {**copy.deepcopy(connections.settings["default"]), "OPTIONS": {}}
    connections.settings[alias] = {**settings, **server.database}
    with blocker.unblock():
        connection = connections[alias]
        try:
            try:
                connection.ensure_connection()
            except NotSupportedError as error:
                pytest.skip(str(error))
            yield connection
        finally:
            if connection.connection is not None:
                with connection.cursor() as cursor:
                    cursor.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            connections.close_all()
            del connections[alias]
            del connections.settings[alias]


@pytest.fixture
def postgres(postgres_server: PostgresServer, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """Give the alias of a PostgreSQL with the table of the orders, whose commits take 2 ms."""
    with connected(ALIAS, postgres_server, django_db_blocker) as connection:
        with connection.schema_editor() as editor:
            editor.create_model(Order)
            editor.execute(SLOW_COMMIT)
        yield ALIAS


class Router:
    """Sends every model to the whole database."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return WHOLE

    db_for_write = db_for_read


@pytest.fixture
def whole_postgres(
    postgres_server: PostgresServer, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """Give the alias of a PostgreSQL with all tables, where every model is."""
    with (
        override_settings(DATABASE_ROUTERS=[f"{__name__}.Router"]),
        connected(WHOLE, postgres_server, django_db_blocker),
    ):
        call_command("migrate", database=WHOLE, verbosity=0)
        yield WHOLE
