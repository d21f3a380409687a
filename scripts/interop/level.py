"""What a sidecar uses when it has nothing to do."""

import re

from harness import PATIENCE, Timeout, wait_for
from sidecar import get, goroutines, pending

# Seconds after which nothing is left of traffic that has ended, on a machine that does
# much else: timers have run out, and whoever waited for them has gone.
REST = 60


class Level:
    """What a sidecar uses."""

    def __init__(self, p):
        self.pid, self.fds, self.goroutines, self.pending = p.child.pid, p.fds(), goroutines(p), pending(p)
        self.buffered = float(re.search(r"^remora_buffered_bytes (\S+)$", get(p, "/metrics"), re.M).group(1))

    def above(self, before):
        """What is higher than before, by more than comes and goes by itself."""
        return [f"{what} ({was:.0f} -> {now:.0f})" for what, was, now, slack in (
            ("descriptors", before.fds, self.fds, 4),
            ("goroutines", before.goroutines, self.goroutines, 3),
            ("pending", 0, self.pending, 0),
            ("buffered", 0, self.buffered, 2 << 16)) if now > was + slack]


def at_rest(p, before, seconds=REST, level=Level):
    """The level once it is back at the one before, or after so many seconds."""
    now = None

    def rests():
        nonlocal now
        now = level(p)
        return not now.above(before)

    try:
        wait_for("rest", seconds, rests)
    except Timeout:
        pass
    return now


def unpooled(p):
    """Waits until a sidecar has closed the connections that it pooled to its application."""
    pooled = re.compile(r'^remora_endpoint_connections\{.*service="local".*\} [1-9]', re.M)
    wait_for(f"the end of pooled connections of {p.name}", PATIENCE, lambda: not pooled.search(get(p, "/metrics")))
