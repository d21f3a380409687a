"""Draws what scripts/tail.sh and remora-lab demo --mode shadow measured, as SVG.
See scripts/plots.sh."""

import json
import math
import statistics
import sys

WIDTH, PLANE = 720, 320  # PLANE is the height of the part within the axes
LEFT, RIGHT, BOTTOM = 60, 40, 50
LEGEND = 18  # the height of a line of the legend

# Lines of the curve of latencies: the row of tail.sh, what it is called, its colour.
CURVES = [
    ("haproxy", "HAProxy leastconn, 1 hop", "#8a8f98"),
    ("envoy-hedge", "Envoy, hedge after 5 ms, 1 hop", "#7b4fa3"),
    ("remora-off", "Remora, hedging off", "#c2571a"),
    ("remora", "Remora, hedging auto", "#1769aa"),
    ("remora-max2", "Remora, hedging auto, max 2", "#2a8a4a"),
]
QUANTILES = [(0, "0"), (0.9, "90%"), (0.99, "99%"), (0.999, "99.9%"), (0.9999, "99.99%")]


def nines(q):
    return -math.log10(1 - q)


def logarithmic(low, high):
    return lambda v: math.log(max(v, low) / low) / math.log(high / low)


class Chart:
    """A plane with axes and a legend of some lines above it; x and y map values to
    [0, 1]."""

    def __init__(self, legend, x, y, x_ticks, y_ticks, x_title, y_title):
        top = legend * LEGEND + 30
        bottom = top + PLANE
        self.height = bottom + BOTTOM
        self.x = lambda v: LEFT + (WIDTH - LEFT - RIGHT) * x(v)
        self.y = lambda v: bottom - PLANE * y(v)
        self.parts, self.lines = [], 0
        for v, label in x_ticks:
            self._line(self.x(v), top, self.x(v), bottom)
            self._text(self.x(v), bottom + 18, label, "middle")
        for v, label in y_ticks:
            self._line(LEFT, self.y(v), WIDTH - RIGHT, self.y(v))
            self._text(LEFT - 8, self.y(v) + 4, label, "end")
        self._text((LEFT + WIDTH - RIGHT) / 2, bottom + 40, x_title, "middle")
        self._text(6, top - 12, y_title, "start")

    def _line(self, x1, y1, x2, y2, colour="#ddd", width=1):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>')

    def _text(self, x, y, text, anchor):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333">{text}</text>')

    def line(self, title, colour, points):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        self.lines += 1
        at = self.lines * LEGEND
        self._line(LEFT + 10, at, LEFT + 36, at, colour, 2)
        self._text(LEFT + 44, at + 4, title, "start")

    def write(self, file):
        with open(file, "w") as f:
            f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" font-family="sans-serif" font-size="13">\n'
                    f'<rect width="{WIDTH}" height="{self.height}" fill="white"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def latencies(samples, file):
    """Latency over the share of requests, each point the median of the rounds."""
    chart = Chart(len(CURVES), lambda q: nines(min(q, 0.9999)) / 4, logarithmic(0.5, 100), QUANTILES,
                  [(v, f"{v:g}") for v in (0.5, 1, 2, 5, 10, 20, 50, 100)], "share of requests that took no longer", "ms")
    for row, title, colour in CURVES:
        rounds = {}
        for s in samples:
            for p in s["curve"] if s["row"] == row else []:
                if 0 < p["quantile"] <= 0.9999:
                    rounds.setdefault(round(p["quantile"], 6), []).append(min(p["ms"], 100))
        if rounds:
            chart.line(title, colour, [(q, statistics.median(v)) for q, v in sorted(rounds.items())])
    chart.write(file)


def forecasts(phase, file):
    """What shadow mode forecasts for each delay: P99, P99.9 and extra load."""
    fixed = sorted((f for f in phase["forecasts"] if not f["current"]), key=lambda f: f["delay_ms"])
    delays = [f["delay_ms"] for f in fixed]
    chart = Chart(3, logarithmic(delays[0], delays[-1]), logarithmic(0.1, 100), [(d, f"{d:g}") for d in delays],
                  [(v, f"{v:g}") for v in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)], "delay of the hedge, ms", "ms or %")
    for key, title, colour, scale in (
        ("p999_ms", "P99.9, ms", "#c2571a", 1), ("p99_ms", "P99, ms", "#1769aa", 1), ("extra_load", "extra load, %", "#2a8a4a", 100),
    ):
        chart.line(title, colour, [(f["delay_ms"], f[key] * scale) for f in fixed if f[key]])
    chart.write(file)


def main(tail, shadow, directory):
    with open(tail) as f:
        latencies(json.load(f)["samples"], f"{directory}/tail.svg")
    with open(shadow) as f:
        forecasts(json.load(f)["off"], f"{directory}/forecast.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
