"""Whether a series of samples grows, and a drawing of it."""

import statistics

from plot import Chart


def slope(points):
    """Theil and Sen's: the median of the slopes between points, which a few odd ones
    do not move. At most 300 points are looked at, evenly spread."""
    points = points[::max(1, len(points) // 300)]
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1:] if x2 > x1]
    return statistics.median(slopes) if slopes else 0.0


class Growth:
    """What a series has grown by, in its own unit: by the medians of its first and
    last fifth, and by its slope. Both have to be over the bound, for a slope
    alone may be a step early on, and an end alone a burst."""

    def __init__(self, points, share, room):
        fifth = max(1, len(points) // 5)
        self.first = statistics.median(y for _, y in points[:fifth])
        self.last = statistics.median(y for _, y in points[-fifth:])
        self.by_slope = slope(points) * (points[-1][0] - points[0][0])
        self.bound = share * self.first + room

    def over(self):
        return self.last - self.first > self.bound and self.by_slope > self.bound

    def __str__(self):
        return (f"{self.first:9.1f} -> {self.last:9.1f}  slope {self.by_slope:+8.1f}  "
                f"bound {self.bound:+7.1f}{'  OVER' if self.over() else ''}")


COLOURS = ("#1769aa", "#c2571a", "#2a8a4a", "#7b4fa3", "#8a8f98")


def draw(file, title, series, seconds):
    """Lines over time; series are points (second, value) by name."""
    top = max((y for points in series.values() for _, y in points), default=1) or 1
    step = next(s for e in range(-3, 9) for s in (10.0 ** e, 2 * 10.0 ** e, 5 * 10.0 ** e) if top / s <= 6)
    top = step * (int(top / step) + 1)
    minute = 60 * max(1, round(seconds / 60 / 8))
    chart = Chart(len(series), lambda x: x / seconds, lambda y: y / top,
                  [(x, f"{x // 60}") for x in range(0, int(seconds) + 1, minute)],
                  [(n * step, f"{n * step:g}") for n in range(round(top / step) + 1)], "minutes", title)
    for colour, (name, points) in zip(COLOURS, series.items()):
        chart.line(name, colour, points)
    chart.write(file)
