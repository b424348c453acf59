"""The results as one picture."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.peers import OURS, PEERS

if TYPE_CHECKING:
    from pathlib import Path

    from bench.report import Results

OWN, OTHERS, BAR = "#c0392b", "#8fa3b5", "#2c3e50"
LEFT_OUT = ("floor", "nothing")


class Panel(NamedTuple):
    title: str
    part: str
    figure: str
    form: str
    limit: float
    log: bool = False


PANELS = (
    Panel("Acquire and release, to redis-py's", "solo", "new_ratio", "{:.2f}", 1.10, log=True),
    Panel("Hand-over p50, ms", "contended", "handover_p50_ms", "{:.2f}", 1.0, log=True),
    Panel("Total over ideal", "contended", "total_over_ideal", "{:.2f}", 1.20, log=True),
    Panel("Most overtaken, by clients", "contended", "most_overtaken", "{:.0f}", 3),
    Panel("Requests per contended turn", "contended", "requests_per_turn", "{:.1f}", 5, log=True),
    Panel("50 idle waiters, requests / s", "idle", "requests_per_s", "{:.1f}", 5, log=True),
    Panel("After kill -9, worst, ms", "takeover", "worst_ms", "{:.0f}", 150, log=True),
    Panel("Release p99, pool of 2, ms", "pool", "release_p99_ms", "{:.1f}", 20, log=True),
)


def draw(results: Results, path: Path) -> None:
    """Write a picture with a panel for each figure that this run has."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    parts = results["parts"]
    panels = [panel for panel in PANELS if values(parts, panel)]
    if not panels:
        return
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(6.2 * columns, 0.6 + 2.9 * rows), squeeze=False, layout="tight"
    )
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for panel, axes in zip(panels, grid.flat, strict=False):
        fill(axes, panel, values(parts, panel))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def values(parts: dict[str, Any], panel: Panel) -> dict[str, float]:
    """Return the figure of each peer that has it, in the order of PEERS."""
    part = parts.get(panel.part, {})
    return {
        peer: part[peer]["figures"][panel.figure]
        for peer in PEERS
        if peer not in LEFT_OUT and panel.figure in part.get(peer, {}).get("figures", {})
    }


def fill(axes: Any, panel: Panel, figures: dict[str, float]) -> None:
    names = [PEERS[peer].title for peer in figures]
    colours = [OWN if peer in OURS else OTHERS for peer in figures]
    bars = axes.barh(names, list(figures.values()), color=colours)
    axes.invert_yaxis()
    axes.bar_label(bars, [panel.form.format(value) for value in figures.values()], padding=3)
    axes.axvline(panel.limit, color=BAR, linestyle=":", linewidth=1)
    if panel.log:
        axes.set_xscale("log")
    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.margins(x=0.18)
    axes.tick_params(axis="y", length=0, labelsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
