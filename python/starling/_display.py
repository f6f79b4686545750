"""Tables and charts for notebooks."""

from __future__ import annotations

import html
import math
from typing import Any, Iterable, List, Sequence, Tuple

_CELL = "text-align:left;padding:2px 12px 2px 0"


def number_text(value: float) -> str:
    """A number with five digits."""
    return f"{value:.5g}"


def html_table(title: str, rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A small table without colors of its own, since notebooks may be dark."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f'<{tag} style="{_CELL}">{html.escape(str(cell))}</{tag}>' for cell in cells) + "</tr>"

    parts = [f'<caption style="{_CELL};font-weight:bold;white-space:nowrap">{html.escape(title)}</caption>'] if title else []
    parts += [line(head, "th")] if head else []
    parts += [line(row, "td") for row in rows]
    return f'<table style="border-collapse:collapse">{"".join(parts)}</table>'


class Listing(List[dict]):
    """A list of families, as dicts, that a notebook shows as a table."""

    def rows(self) -> List[Tuple[str, str]]:
        return [(signature(one), one["summary"]) for one in self]

    def __repr__(self) -> str:
        rows = self.rows()
        width = max((len(name) for name, _ in rows if len(name) <= 40), default=0)
        return "\n".join(f"{name:<{width}}  {summary}" for name, summary in rows)

    def _repr_html_(self) -> str:
        return html_table("", self.rows())


def signature(family: "dict[str, Any]") -> str:
    """A family as you would type it, such as ``base(k=1)``; parameters without a default must be given."""
    given = ", ".join(
        f"{one['name']}={one['default'] if one['default'] is not None else '...'}" for one in family["parameters"])
    return f"{family['name']}({given})" if given else family["name"]


_COLORS = ("#1f77b4", "#d95f02", "#2ca02c", "#9467bd")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 240, 56, 34


def line_chart(curves: "dict[str, tuple[Any, Any]]", x_label: str) -> str:
    """An SVG picture of positive values over x, on a logarithmic axis; '' where there is nothing to draw."""
    points = {name: [(float(x), math.log10(y)) for x, y in zip(*curve) if 0 < y < math.inf]
              for name, curve in curves.items()}
    points = {name: line for name, line in points.items() if len(line) > 1}
    if not points:
        return ""
    every = [point for line in points.values() for point in line]
    left, right = min(x for x, _ in every), max(x for x, _ in every)
    low, high = math.floor(min(y for _, y in every)), math.ceil(max(y for _, y in every))
    high = max(high, low + 1)

    def at(x: float, y: float) -> str:
        across = (x - left) / ((right - left) or 1)
        return (f"{_LEFT + across * (_WIDTH - _LEFT - 10):.1f},"
                f"{10 + (high - y) / (high - low) * (_HEIGHT - _BOTTOM - 10):.1f}")

    parts = []
    for power in range(low, high + 1, max(1, (high - low) // 6)):
        x, y = at(left, power).split(",")
        parts.append(f'<line x1="{x}" y1="{y}" x2="{_WIDTH - 10}" y2="{y}" stroke="#8884"/>'
                     f'<text x="{_LEFT - 6}" y="{y}" dy="4" text-anchor="end">1e{power}</text>')
    for x, anchor in ((left, "start"), (right, "end")):
        parts.append(f'<text x="{at(x, low).split(",")[0]}" y="{_HEIGHT - 18}" text-anchor="{anchor}">{x:g}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 18}" text-anchor="middle">{html.escape(x_label)}</text>')
    for index, (name, line) in enumerate(points.items()):
        color = _COLORS[index % len(_COLORS)]
        path = " ".join(at(x, y) for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.8"/>'
                     f'<text x="{_LEFT + 120 * index}" y="{_HEIGHT - 2}" fill="{color}">{html.escape(name)}</text>')
    return (f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" style="font:11px sans-serif" '
            f'fill="currentColor">{"".join(parts)}</svg>')
