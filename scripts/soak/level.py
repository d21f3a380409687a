"""What a sidecar uses at rest."""

from harness.process import Timeout, wait_for
from harness.suite import change

# Seconds after which nothing is left of ended traffic on a busy machine: timers have
# expired, and their waiters have gone. A link closes when it has carried nothing for 60 s.
REST = 90


class Level:
    """What a sidecar uses."""

    COLUMNS = ("RSS MiB", "descriptors", "goroutines", "pending", "buffered")

    def __init__(self, p):
        self.fds, self.goroutines, self.pending = p.fds(), p.goroutines(), p.pending()
        self.others = self.fds - int(sum(p.metrics("remora_reactor_connections").values()))
        self.buffered = int(p.metrics("remora_buffered_bytes")[""])
        self.rss = p.rss()

    def cells(self, before):
        return (change(before.rss / 2**20, self.rss / 2**20, "{:.1f}"), change(before.fds, self.fds),
                change(before.goroutines, self.goroutines), self.pending, self.buffered)

    def above(self, before):
        """What is higher than before by more than normal variation. Descriptors beside
        connections and goroutines hardly ever change."""
        return [f"{what} ({was:.0f} -> {now:.0f})" for what, was, now, slack in (
            ("descriptors", before.fds, self.fds, 4),
            ("descriptors beside connections", before.others, self.others, 2),
            ("goroutines", before.goroutines, self.goroutines, 1),
            ("pending", 0, self.pending, 0),
            ("buffered", 0, self.buffered, 1 << 16)) if now > was + slack]


def level_at_rest(p, before, seconds):
    """The level once it is back at the one before, or after so many seconds."""
    now = None

    def rests():
        nonlocal now
        now = Level(p)
        return not now.above(before)

    try:
        wait_for("rest", rests, seconds)
    except Timeout:
        pass
    return now


def wait_unpooled(p):
    """Waits until a sidecar has closed the pooled connections to its application."""
    wait_for(f"the end of pooled connections of {p.name}", lambda: not any(
        n for labels, n in p.metrics("remora_endpoint_connections").items() if 'service="local"' in labels))
