"""What a sidecar tells of itself through its admin API, at p.admin."""

import http.client
import re
import time
import urllib.error
import urllib.request

from harness import PATIENCE


def get(p, path):
    """What path answers, which is text."""
    return fetch(p, path).decode()


def fetch(p, path):
    """What path answers. 503 is of a sidecar whose loops got no processor for a second, and an answer that is cut
    off of one that got too little to send it all: they are asked again."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return _ask(p, path)
        except urllib.error.HTTPError as e:
            if e.code != 503 or time.monotonic() > end:
                raise
        except http.client.IncompleteRead:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def _ask(p, path):
    with urllib.request.urlopen(p.admin + path, timeout=PATIENCE) as r:
        return r.read()


def ready(p):
    """Tells whether it knows the endpoints of its services."""
    try:
        return _ask(p, "/readyz")
    except urllib.error.HTTPError:
        return False


def goroutines(p):
    """How many there are, but for the engine's pool of workers, which end when they have been idle long enough."""
    stacks = get(p, "/debug/pprof/goroutine?debug=1").split("\n\n")
    counts = [(int(m.group(1)), stack) for stack in stacks if (m := re.search(r"^(\d+) @", stack, re.MULTILINE))]
    return sum(n for n, stack in counts if "ants/v2.(*goWorker).run" not in stack)


# What a sidecar counts as unfinished; each is in /metrics once for a service or an endpoint.
PENDING = ("remora_requests_pending", "remora_requests_queued", "remora_slots_in_use", "remora_endpoint_pending")


def pending(p):
    """The sum of a sidecar's counts of unfinished work."""
    total, metrics = 0, get(p, "/metrics")
    for name in PENDING:
        values = re.findall(rf"^{name}\{{.*\}} (\S+)$", metrics, re.MULTILINE)
        if not values:
            raise RuntimeError(f"{p.name} has no metric {name}")
        total += sum(float(v) for v in values)
    return int(total)
