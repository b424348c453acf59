"""Reads what is exposed to Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


def read(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples in ``text`` by their names: the labels and the value of each."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


class Exposed:
    """The samples of a ``source``: a registry, a collector, or the text of an answer."""

    def __init__(self, source: Collector | str) -> None:
        text = source if isinstance(source, str) else generate_latest(source).decode()
        self.samples = read(text)

    def __getitem__(self, name: str) -> float:
        """Return the only sample called ``name``."""
        ((_, value),) = self.samples[name]
        return value

    def get(self, name: str, **labels: str) -> float:
        """Return the sample with just these labels, besides ``cache``; 0 if there is none."""
        for known, value in self.samples.get(name, ()):
            if {label: known[label] for label in known if label != "cache"} == labels:
                return value
        return 0.0

    def values(self, name: str, label: str) -> set[str]:
        """Return the values of a label."""
        return {labels[label] for labels, _ in self.samples.get(name, ())}
