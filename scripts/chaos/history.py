"""Judges what callers have seen and what applications have done while faults came together."""

import collections
from typing import NamedTuple

DEADLINE = 1.5  # seconds that a caller gives its sidecar, by x-remora-timeout-ms
SLACK = 2  # seconds by which a response may be late
START = 10  # seconds after its start in which a sidecar listens again

# With several faults at once a request may fail, by one of these codes of docs/errors.md.
FAILURES = {"no-endpoint", "overloaded", "no-slot", "connection-full", "too-many-dials", "draining", "upstream-connect",
            "upstream-goaway", "upstream-refused", "upstream-reset", "deadline"}

# Of these, the codes of requests that no application has got, unless they may be sent twice.
UNSEEN = FAILURES - {"upstream-reset", "deadline"}

# Over HTTP a response of a provider's sidecar is, to the consumer's, a response of an application: it loses its code.
PASSED_ON = {"HTTP 502", "HTTP 503", "HTTP 504"}

# The failures that a lack of processor time causes, too.
LATE = {"deadline", "HTTP 504"}

# What a client sees of a response that is not the one to its request: of another one, not whole, or one too many.
WRONG = {"nonce", "protocol", "stray"}

# What a client sees of a sidecar that is away.
GONE = {"connect", "reset"}

# Causes while which a sidecar is away, and while which it does not run or does not take connections. Its callers wait then.
AWAY, STILL = {"kill", "vanish", "descriptors"}, {"pause", "descriptors"}


class Caller(NamedTuple):
    sidecar: str
    protocol: str  # between the sidecars
    idempotent: bool
    requests: list  # of measure.Request


class Spell(NamedTuple):
    """How long a fault really lasted."""
    cause: str
    target: str
    begun: float  # Unix time
    ended: float


class Round(NamedTuple):
    """The times of a schedule's run, in Unix time."""
    begun: float  # before the first fault
    normal: float  # when all was as before, after the last fault
    stopped: float  # when the callers were told to stop: requests in flight were cut off
    spells: list
    waits: list = ()  # for a processor: of processor.Wait


class Breach(NamedTuple):
    rule: str
    what: str


def judge(callers, executions, of):
    """The breaches of a Round. executions is a Counter of how often applications have begun to carry out each nonce."""
    breaches = []
    for caller in callers:
        gone, still = gaps(of.spells, caller.sidecar), stops(of.spells, caller.sidecar)
        for r in caller.requests:
            rule = broken_rule(r, caller, executions[r.nonce], of, gone, still)
            if rule:
                breaches.append(Breach(rule, described(r, caller, executions[r.nonce], of.begun)))
    return breaches


def broken_rule(r, caller, executions, of, gone, still):
    """The rule that a request breaks, "" for none."""
    if r.failure in WRONG:
        return "its own response"
    if not r.failure and not executions:
        return "a response of an application"
    if not caller.idempotent and executions > 1:
        return "at most once"
    if not caller.idempotent and executions and r.failure in UNSEEN:
        return "refused means not carried out"
    if r.waited is not None:
        sent = r.due + r.waited
        if r.end() - sent > DEADLINE + SLACK + sum(overlap(sent, r.end(), *s) for s in still) + starved(of.waits, sent, r.end()):
            return "in time"
    if not r.failure or r.failure in GONE and r.end() >= of.stopped:
        return ""
    if r.failure in LATE and starved(of.waits, r.due, r.end()) > SLACK / 2:
        return ""
    if r.end() < of.begun:
        return "no failure before the faults"
    if r.due > of.normal:
        return "" if may_be_stale(r, caller) else "recovery"
    if r.failure in GONE:
        return "" if any(overlap(r.due, r.end(), *g) for g in gone) else "a response"
    return "" if r.failure in (FAILURES if caller.protocol == "link" else FAILURES | PASSED_ON) else "a stated code"


def may_be_stale(r, caller):
    """Reports whether a connection to a provider may have been lost in silence before: the first request on it tells. Links
    are probed."""
    return r.failure == "upstream-reset" and not caller.idempotent and caller.protocol != "link"


def described(r, caller, executions, since):
    kind = "idempotent" if caller.idempotent else "other"
    return (f"{r.nonce} ({kind}) of {caller.sidecar} over {caller.protocol}, due after {r.due - since:.2f} s, "
            f"{r.failure or 'well'} after {r.latency:.2f} s, begun {executions} times")


def gaps(spells, sidecar):
    """When callers may find the sidecar away: until START after its start, which a fault in that time prolongs."""
    merged = []
    for s in sorted((s for s in spells if s.target == sidecar and s.cause in AWAY | STILL), key=lambda s: s.begun):
        if merged and s.begun <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], s.ended + START))
        elif s.cause in AWAY:
            merged.append((s.begun, s.ended + START))
    return merged


def stops(spells, sidecar):
    """When the sidecar did not run or did not take connections."""
    merged = []
    for begun, ended in sorted((s.begun, s.ended) for s in spells if s.target == sidecar and s.cause in STILL):
        if merged and begun <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ended))
        else:
            merged.append((begun, ended))
    return merged


def starved(waits, since, until):
    """The seconds that a request in that time may have waited for a processor."""
    return sum(w.seconds for w in waits if overlap(since, until, w.begun, w.ended))


def overlap(a, b, since, until):
    """The seconds of a to b that lie within since to until; a moment within counts as a little."""
    if b < since or a > until:
        return 0
    return max(min(b, until) - max(a, since), 1e-6)


def read_executions(path, offset):
    """The nonces in an application's log from an offset, and the offset of its end."""
    with open(path, "rb") as f:
        f.seek(offset)
        lines = f.read()
    return collections.Counter(line.split()[1].decode() for line in lines.splitlines() if len(line.split()) == 2), offset + len(lines)
