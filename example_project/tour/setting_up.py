"""Prepares the database: tables, orders to pay, somebody to log in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command

from django_setnx_lock.connection import get_client
from example_project.shop import importing
from example_project.shop.models import Charge, Order

SAMPLE_ORDERS = Path(importing.__file__).with_name("sample_orders.csv")
USERNAME = "admin"
PASSWORD = "demo"  # noqa: S105 - public, for a site that only this machine can reach


def set_up() -> list[Order]:
    """Return the sample orders, all unpaid; what else is in the database stays as it is."""
    call_command("migrate", verbosity=0, interactive=False)
    importing.import_orders(SAMPLE_ORDERS)
    samples = Order.objects.filter(number__in=importing.read(SAMPLE_ORDERS))
    Charge.objects.filter(order__in=samples).delete()
    samples.update(paid_at=None, paid_by="")
    _make_admin()
    return list(samples)


def describe(url: str) -> Iterator[str]:
    """Yield what there is: the site, the server behind the locks, the database."""
    server = get_client().info("server")
    kind = server.get("server_name", "redis").capitalize()
    version = server.get("valkey_version") or server["redis_version"]
    whose = "from REDIS_URL" if os.environ.get("REDIS_URL") else "embedded"
    name = os.path.relpath(settings.DATABASES["default"]["NAME"])
    yield f"site       {url}"
    yield f"locks      {kind} {version} ({whose})"
    yield f"database   {name}, with {Order.objects.count()} orders"


def _make_admin() -> None:
    rights = {"is_staff": True, "is_superuser": True, "is_active": True}
    user, _ = get_user_model().objects.update_or_create(username=USERNAME, defaults=rights)
    if not user.check_password(PASSWORD):  # else whoever is logged in stays so
        user.set_password(PASSWORD)
        user.save()
