"""A page with curves: how long a step takes, over the bandwidth of the links."""
import html
import math

from report import rate_text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 64, 170, 20, 48
COLORS = ("#33508f", "#c0562b", "#2e8b6f", "#8a4fa8", "#b08a1e", "#5d6779", "#c23b6a", "#3b8fc2")
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#182033;background:#fff}
svg{width:100%;height:auto} text{font-size:13px;fill:#182033} .line{stroke:#dde2ea} table{border-collapse:collapse}
td,th{padding:.2em .8em;text-align:right} td:first-child,th:first-child{text-align:left}
"""


def _ticks(low, high):
    """1, 2 and 5 times powers of ten, within."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10.0**p for p in powers for m in (1, 2, 5) if low * 0.999 <= m * 10.0**p <= high * 1.001]


def _seconds(value):
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def _chart(points):
    """SVG of {contender: [(Mbit/s, seconds)]}; both axes are logarithmic."""
    rates = [rate for series in points.values() for rate, _ in series]
    values = [seconds for series in points.values() for _, seconds in series]
    low_x, high_x, low_y, high_y = min(rates) / 1.1, max(rates) * 1.1, min(values) / 1.2, max(values) * 1.2

    def x(rate):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(rate / low_x) / math.log(high_x / low_x)

    def y(seconds):
        return TOP + (HEIGHT - TOP - BOTTOM) * math.log(high_y / seconds) / math.log(high_y / low_y)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for tick in _ticks(low_y, high_y):
        parts.append(f'<line class="line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
                     f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{_seconds(tick)}</text>')
    for rate in sorted(set(rates)):
        parts.append(f'<line class="line" x1="{x(rate):.1f}" x2="{x(rate):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
                     f'<text x="{x(rate):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{rate:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">Mbit/s of every link</text>')
    # Names at the right ends of the curves, moved apart if they would overlap.
    ends = sorted((y(max(series)[1]), name) for name, series in points.items())
    for at in range(1, len(ends)):
        ends[at] = (max(ends[at][0], ends[at - 1][0] + 16), ends[at][1])
    label_y = {name: at for at, name in ends}
    for (name, series), color in zip(points.items(), COLORS * (1 + len(points) // len(COLORS))):
        line = " ".join(f"{x(rate):.1f},{y(seconds):.1f}" for rate, seconds in sorted(series))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        shown = html.escape(name)
        parts += [f'<circle cx="{x(rate):.1f}" cy="{y(seconds):.1f}" r="3.5" fill="{color}">'
                  f"<title>{shown}, {rate:g} Mbit/s: {_seconds(seconds)}</title></circle>" for rate, seconds in series]
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{label_y[name] + 4:.1f}" style="fill:{color}">{shown}</text>')
    return "".join(parts) + "</svg>"


def _table(times):
    rows = "".join(f"<tr><td>{html.escape(one.contender)}<td>{rate_text(one.rate)}"
                   f"<td>{_seconds(one.seconds)}<td>{100 * one.idle:.0f} %</tr>" for one in times)
    return f"<table><tr><th>contender<th>Mbit/s<th>median<th>CPU idle</tr>{rows}</table>"


def page(times):
    """A page of all measurements; unshaped links are only in the tables, because their bandwidth is not defined."""
    parts = []
    for section, hosts in dict.fromkeys((one.section, one.hosts) for one in times):
        some = [one for one in times if (one.section, one.hosts) == (section, hosts)]
        points = {}
        for one in some:
            if one.rate is not None:
                points.setdefault(one.contender, []).append((one.rate, one.seconds))
        parts.append(f"<h2>{html.escape(section)}, {hosts} hosts</h2>{_chart(points) if points else ''}{_table(some)}")
    return ('<!DOCTYPE html><html lang="en"><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>Over the network</title><style>{STYLE}</style><h1>Time over bandwidth</h1>"
            f"<p>Hosts are network namespaces of one machine; medians of interleaved rounds.</p>{''.join(parts)}</html>\n")
