"""Reads the logs of requests: what failed and why, and when the mesh had recovered."""

import bisect
import collections
import heapq
from typing import NamedTuple

WINDOW = 1.0  # seconds without a failure that count as recovery
STEP = 0.1  # between the windows


class Request(NamedTuple):
    due: float  # Unix time
    latency: float  # seconds
    failure: str  # x-remora-error, else the client's own word, "" without a failure
    nonce: str = ""
    waited: float = 0.0  # seconds until it was written; None if it never was

    def end(self):
        return self.due + self.latency


def read(path):
    """The requests of a log of remora-lab load, in the order of their due times."""
    requests = []
    with open(path, encoding="ascii") as f:
        for line in f:
            due, latency, status, kind, code, nonce, waited = line.split()
            failure = "" if kind == "-" else f"HTTP {status}" if (kind, code) == ("status", "-") else code if kind == "status" else kind
            sent = None if waited == "-1" else int(waited) / 1e6
            requests.append(Request(int(due) / 1e6, int(latency) / 1e6, failure, nonce, sent))
    return sorted(requests, key=lambda r: r.due)


def between(requests, since, until):
    """The requests that were due in that time."""
    low, high = (bisect.bisect_left(requests, t, key=lambda r: r.due) for t in (since, until))
    return requests[low:high]


def p99(requests):
    """In seconds; None without requests."""
    latencies = sorted(r.latency for r in requests)
    return latencies[int(0.99 * len(latencies))] if latencies else None


def failures(requests):
    """The number of failures by their reason."""
    return collections.Counter(r.failure for r in requests if r.failure)


def most_in_flight(requests, until):
    """The most requests, of those due before until, that were in flight at one time."""
    ends, most = [], 0
    for r in between(requests, 0, until):
        while ends and ends[0] <= r.due:
            heapq.heappop(ends)
        heapq.heappush(ends, min(r.due + r.latency, until))
        most = max(most, len(ends))
    return most


def recovery(hedged, all_requests, since, limit):
    """The seconds from since to the first window without a failure in which the hedged
    requests' P99 was within limit, None if there is no such window."""
    start, last = since, all_requests[-1].due
    while start + WINDOW <= last:
        window = between(all_requests, start, start + WINDOW)
        if window and not failures(window) and p99(between(hedged, start, start + WINDOW)) <= limit:
            return start - since
        start += STEP
    return None
