from __future__ import annotations

import io
import json

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db import connection
from django.db.backends.mysql.validation import DatabaseValidation

from django_setnx_lock import lock
from django_setnx_lock.models import Lock

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("options", [{}, {"use_base_manager": True}])
def test_dumpdata_passes_over_the_locks(options: dict[str, bool]) -> None:
    output = io.StringIO()

    with lock("order:42"):
        call_command("dumpdata", "django_setnx_lock", stdout=output, **options)

    assert json.loads(output.getvalue()) == []


def test_there_is_no_table() -> None:
    assert Lock._meta.db_table not in connection.introspection.table_names()


def test_there_is_a_permission_to_see_and_one_to_release_and_no_other() -> None:
    found = Permission.objects.filter(content_type__app_label="django_setnx_lock")

    assert sorted(found.values_list("codename", "name")) == [
        ("release_lock", "Can force-release lock"),
        ("view_lock", "Can view lock"),
    ]


def test_the_migration_says_what_the_model_says() -> None:
    call_command("makemigrations", "django_setnx_lock", check=True, dry_run=True, verbosity=0)


def test_a_lock_is_called_by_its_key() -> None:
    assert str(Lock(name="lock:order:42")) == "order:42"


@pytest.mark.parametrize(
    ("length", "warnings"), [(Lock._meta.pk.max_length, []), (256, ["mysql.W003"])]
)
def test_the_name_is_short_enough_for_mysql(length: int, warnings: list[str]) -> None:
    field = Lock._meta.pk.clone()
    field.max_length = length

    found = DatabaseValidation(connection).check_field_type(field, f"varchar({length})")

    assert [warning.id for warning in found] == warnings
