from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from django_setnx_lock.management import LockedCommand
from example_project.shop.importing import COLUMNS, ImportProblem, import_orders

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(LockedCommand):
    help = "Adds the orders of a CSV file that are not known yet, one import at a time."
    lock_key = "orders:import"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help=f"Has the columns {', '.join(COLUMNS)}.")

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        try:
            added, known = import_orders(file)
        except (ImportProblem, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{added} added, {known} known before.")
