from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from django_setnx_lock import LockDeadlock, LockError, lock

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    help = (
        "Takes the locks of two orders one after the other, in the order given. Run twice at once, "
        "with the orders the other way round, that is a deadlock. It waits for Enter in between."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("first", type=int, help="Which order is locked first.")
        parser.add_argument("second", type=int, help="And which then.")

    def handle(self, *args: Any, first: int, second: int, **options: Any) -> None:
        try:
            with lock(f"order:{first}", label="hold_both"):
                self.stdout.write(f"has order:{first}; Enter takes order:{second}, too")
                self.stdout.flush()
                sys.stdin.readline()
                with lock(f"order:{second}", label="hold_both"):
                    self.stdout.write(f"has order:{first} and order:{second}")
        except LockDeadlock as error:
            cycle = "".join(f"\n  {step}" for step in error.cycle)
            raise CommandError(f"a deadlock, so order:{first} is let go:{cycle}") from error
        except LockError as error:
            raise CommandError(str(error)) from error
