"""What `make test` runs of the behaviours, and what is left to `make matrix`."""

from __future__ import annotations

from collections import Counter

from tests.contract.__main__ import behaviours


def test_each_kind_is_always_run_by_each_of_its_drivers_in_some_of_its_behaviours() -> None:
    all_of, always = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for _, name, row in behaviours():
        kinds = [kind for kind in row.kinds if not kind.served_by]
        all_of.update((kind.name, each) for kind in kinds for each in row.drivers_of(kind))
        always.update(row.always(name))

    for each, count in all_of.items():
        assert always[each] > count / 8, each


def test_each_behaviour_is_always_run_by_each_of_its_drivers_for_its_first_kind() -> None:
    for _, name, row in behaviours():
        first = row.kinds[0]
        drivers = {driver for kind, driver in row.always(name) if kind == first.name}
        assert drivers == set(row.drivers_of(first)), name
