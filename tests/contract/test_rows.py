"""What `make test` runs of the behaviours, and what is left to `make matrix`."""

from __future__ import annotations

from tests.contract.__main__ import behaviours


def test_each_behaviour_is_always_run_for_each_of_its_kinds() -> None:
    for _, name, row, _ in behaviours():
        kinds = {kind.name for kind in row.kinds if row.drivers_of(kind)}
        assert {kind for kind, _ in row.always(name)} == kinds, name


def test_each_behaviour_is_always_run_by_each_of_its_drivers_for_its_first_kind() -> None:
    for _, name, row, _ in behaviours():
        first = row.kinds[0]
        drivers = {driver for kind, driver in row.always(name) if kind == first.name}
        assert drivers == set(row.drivers_of(first)), name
