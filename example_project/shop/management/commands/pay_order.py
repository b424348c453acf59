from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from django_setnx_lock import LockError, StaleFence, lock
from example_project.shop import payments
from example_project.shop.models import Order

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    help = "Pays an order at the counter, under the same lock as the site does."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pk", type=int, help="Which order.")
        parser.add_argument("--timeout", type=float, default=10, help="The lease (%(default)s s).")

    def handle(self, *args: Any, pk: int, timeout: float, **options: Any) -> None:
        try:
            with lock(f"order:{pk}", timeout=timeout, label="pay_order") as held:
                # The number alone, as a queue passes it on: so the database has to find that it
                # is stale. The handle would know by itself that its lease is over.
                fence = held.fence
                order = Order.objects.claim(fence, pk=pk)
                if order.paid_at:
                    raise CommandError(f"{order} was paid before.")
                self.stdout.write(f"{order}: asking the provider, with fence {fence}")
                self.stdout.flush()
                payments.pay(order, "the counter", fence)
        except StaleFence as error:
            raise CommandError(f"refused: {error}") from error
        except (LockError, Order.DoesNotExist) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{order} is paid.")
