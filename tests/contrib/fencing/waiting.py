"""What a database says of those who wait for others' transactions."""

from __future__ import annotations

from django.db import connections

WAITING = {
    "postgres": "SELECT count(*) FROM pg_locks WHERE NOT granted",
    "mariadb": "SELECT CAST(variable_value AS INT) FROM information_schema.global_status "
    "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
}


def somebody_waits(alias: str) -> bool:
    with connections[alias].cursor() as cursor:
        cursor.execute(WAITING[alias])
        return bool(cursor.fetchone() != (0,))
