"""The results as one picture."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.peers import LOCKS, OURS, PEERS

if TYPE_CHECKING:
    from pathlib import Path

    from bench.report import Results

OWN, OTHERS, PALE = "#c0392b", "#5d7285", "#c9d3dc"
# Behind a label, so that no line crosses it.
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
COLUMNS = 3


class Panel(NamedTuple):
    title: str
    part: str
    figure: str
    form: str
    limit: float


PANELS = (
    Panel("Acquire and release, to redis-py's", "solo", "new_ratio", ".2f", 1.10),
    Panel("Hand-over p50, ms", "contended", "handover_p50_ms", ".2f", 1.0),
    Panel("Total over ideal", "contended", "total_over_ideal", ".2f", 1.20),
    Panel("Most overtaken, as clients see it", "contended", "most_overtaken", ".0f", 3),
    Panel("Requests per contended turn", "contended", "requests_per_turn", ".1f", 5),
    Panel("50 idle waiters, requests / s", "idle", "requests_per_s", ".1f", 5),
    Panel("Next after kill -9, worst, ms", "takeover", "worst_ms", ".0f", 150),
    Panel("1,000 renewed, requests / cycle", "many", "requests_per_cycle", ".0f", 10),
    Panel("Release p99, pool of 2, ms", "pool", "release_p99_ms", ".1f", 20),
    Panel("6,000 in one transaction, to exit", "transaction", "to_exit", ".2f", 1.3),
    Panel("Hand-over between tasks p50, ms", "tasks", "handover_p50_ms", ".2f", 0.5),
    Panel("Connections of waiting tasks", "tasks", "one_connections", ".0f", 5),
    Panel("Bytes in Redis a name", "footprint", "bytes_per_name", ".0f", 400),
    Panel("Server µs / cycle", "capacity", "server_us_100_names", ".0f", 45),
    Panel("Server µs / turn, 10 waiters", "capacity", "server_us_10_waiters", ".0f", 300),
)


def draw(results: Results, path: Path) -> None:
    """Write a picture with a panel for each figure that this run has."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    parts = results["parts"]
    panels = [panel for panel in PANELS if panel.part in parts]
    columns = min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(1.6 + 4.1 * columns, 0.9 + 2.9 * rows), squeeze=False, sharey=True
    )
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for panel, axes in zip(panels, grid.flat, strict=False):
        fill(axes, panel, parts[panel.part])
    figure.suptitle(
        "Less is better; the dotted line is this project's bar; logarithmic scales",
        fontsize=10,
        color=OTHERS,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def fill(axes: Any, panel: Panel, part: dict[str, Any]) -> None:
    """Draw a dot for each peer that has the figure, and say of the others why not."""
    figures = {peer: part.get(peer, {}).get("figures", {}).get(panel.figure) for peer in LOCKS}
    present = [value for value in (*figures.values(), panel.limit) if value and value > 0]
    low, high = min(present) / 1.6, max(present) * 6
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_yticks(range(len(LOCKS)), [PEERS[peer].title for peer in LOCKS], fontsize=8)
    axes.set_ylim(len(LOCKS) - 0.5, -0.5)
    for row, (peer, value) in enumerate(figures.items()):
        colour = OWN if peer in OURS else OTHERS
        at = max(value or low, low)
        if value is not None:
            axes.plot([low, at], [row, row], color=PALE, linewidth=1.2, zorder=1)
            axes.plot([at], [row], "o", color=colour, markersize=6, clip_on=False)
        text = label(value, panel.form, failed="failed" in part.get(peer, {}))
        axes.annotate(
            text,
            (at, row),
            (7, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            bbox=PAPER,
        )
    axes.axvline(panel.limit, color=OWN, linestyle=":", linewidth=1)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_title(panel.title, loc="left", fontsize=10)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def label(value: float | None, form: str, *, failed: bool) -> str:
    if value is None:
        return "failed" if failed else "-"
    return f"{value:{form}}"
