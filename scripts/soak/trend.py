"""The growth of a series of samples, and a drawing of it."""

import statistics


def slope(points):
    """Theil and Sen's slope: the median of the slopes between points, which a few outliers
    don't move. It takes at most 300 points, evenly spread."""
    points = points[::max(1, len(points) // 300)]
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1:] if x2 > x1]
    return statistics.median(slopes) if slopes else 0.0


class Growth:
    """The growth of a series in its own unit: between the medians of its first and last
    fifth, and by its slope. Both must be over the bound: a slope alone may be an early
    step, and an end alone a burst."""

    def __init__(self, points, share, room):
        fifth = max(1, len(points) // 5)
        self.first = statistics.median(y for _, y in points[:fifth])
        self.last = statistics.median(y for _, y in points[-fifth:])
        self.by_slope = slope(points) * (points[-1][0] - points[0][0])
        self.bound = share * self.first + room

    def over(self):
        return self.last - self.first > self.bound and self.by_slope > self.bound

    def __str__(self):
        return f"{self.first:.1f} -> {self.last:.1f}, {self.by_slope:+.1f}, {self.bound:+.1f}{' OVER' if self.over() else ''}"


COLOURS = ("#1769aa", "#c2571a", "#2a8a4a", "#7b4fa3", "#8a8f98")
WIDTH, HEIGHT, LINE = 720, 320, 18
STEP = 3  # of WIDTH, between two points of a line


def highest(points, width):
    """The highest of the points in each stretch of so many seconds."""
    found = {}
    for x, y in points:
        found[x // width] = max(found.get(x // width, (x, y)), (x, y), key=lambda p: p[1])
    return list(found.values())


def draw(file, title, series, seconds):
    """Writes an SVG with lines over time. series are points (second, value) by name. Of a long run it has the highest points."""
    top = max((y for points in series.values() for _, y in points), default=1) or 1
    parts = [f'<text x="0" y="{LINE}">{title}: 0 to {top:.3g}, over {seconds / 60:g} minutes</text>']
    for i, (colour, (name, points)) in enumerate(zip(COLOURS, series.items()), 2):
        path = " ".join(f"{WIDTH * x / seconds:.1f},{HEIGHT * (1 - y / top) + 8 * LINE:.1f}" for x, y in highest(points, STEP * seconds / WIDTH))
        parts.append(f'<text x="0" y="{i * LINE}" fill="{colour}">{name}</text>'
                     f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    with open(file, "w", encoding="ascii") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 9 * LINE}" '
                f'font-family="sans-serif" font-size="13">{"".join(parts)}</svg>\n')
