"""The faults that chaos.sh causes alone, and the promises for each.

A fault is a generator that takes the mesh. It causes the fault and yields, then ends it
and yields. Each value that it yields after that is a broken promise.
"""

import contextlib
import json
import os
import socket
import time
from email.utils import parsedate_to_datetime
from typing import Callable, NamedTuple

from causes import CAUSES, DAY
from layers import together
from mesh import ADDRESSES, ADMIN, ETCDS, LEASE, PROVIDERS

from harness.process import PATIENCE, Timeout, wait_for

ANY = float("inf")

# The failures of requests at a provider that is lost, and how many are allowed beside as
# many as were in flight at once before: few on a machine that keeps up.
IN_FLIGHT = {"upstream-reset": 5}

# The same for a provider whose loss nothing announces: requests sent before its silence
# meant something, and the few probes whether it is back.
UNNOTICED = {"deadline": 30}

# What callers see of a missing sidecar.
GONE = {"connect": ANY, "reset": ANY}


class Fault(NamedTuple):
    act: Callable
    name: str
    what: str
    lasts: float  # seconds
    around: bool  # whether the sidecars route around it: all is well again while it lasts
    hedged: dict  # how many idempotent requests may fail, by reason
    others: dict  # the same of the other requests
    also: str     # other promises

    def promise(self):
        parts = [bound(self.hedged)]
        if self.hedged != self.others:
            parts = [f"idempotent: {bound(self.hedged)}", f"others: {bound(self.others)}"]
        if self.around:
            parts.append("all is well while it lasts")
        return "; ".join(parts + [self.also] * bool(self.also))


def bound(allowed):
    if not allowed:
        return "none fails"
    if ANY in allowed.values():
        return f"they fail while it is away ({', '.join(allowed)})"
    return ", ".join(f"at most {most} fail, and as many as were in flight ({why})" for why, most in allowed.items())


FAULTS = {}


def fault(name, what, lasts=8, around=False, hedged=None, others=None, also=""):
    def register(act):
        FAULTS[name] = Fault(act, name, what, lasts, around, hedged or {}, others or {}, also)
        return act
    return register


def during(name, what, *causes, **promise):
    """A fault that lasts as long as its causes, each with its target."""
    @fault(name, what, **promise)
    def act(m):
        with together(*(CAUSES[cause].hold(m, target) for cause, target in causes)):
            yield
        yield


during("none", "nothing, to compare with")


def cables(name, what, cause, providers=PROVIDERS, **promise):
    during(name, what, *((cause, provider) for provider in providers), **promise)


cables("loss-1", "1% of the packets of all providers are lost", "loss-1")
cables("loss-10", "10% of the packets of all providers are lost", "loss-10")
cables("delay", "50 ms ± 20 ms each way to all providers", "delay-50")
cables("delay-one", "100 ms each way to one provider", "delay-100", PROVIDERS[:1], around=True)
cables("reorder", "a quarter of the packets overtake the others, which take 10 ms, at all providers", "reorder")

during("partition-to", "nothing reaches one provider", ("cut-to", "provider-1"), around=True, others=UNNOTICED)
during("partition-from", "nothing comes from one provider", ("cut-from", "provider-1"), around=True, others=UNNOTICED)
during("partition", "one provider is cut off", ("cut-to", "provider-1"), ("cut-from", "provider-1"), around=True, others=UNNOTICED)
during("rst", "one provider's host responds with RST to all packets for its sidecar", ("rst", "provider-1"), around=True,
       others=IN_FLIGHT)


@fault("half-open", "one provider vanishes from the network without a word", lasts=30, around=True, others=UNNOTICED,
       also="the consumer has no connection left to it")
def half_open(m):
    with CAUSES["vanish"].hold(m, "provider-1"):
        yield
        left = m.connections("consumer", ADDRESSES["provider-1"])
    yield
    if left:
        yield f"the consumer still has {left} connections to the provider"


@fault("half-open-consumer", "the consumer's sidecar vanishes without a word, and is back 2 s later", lasts=2, hedged=GONE, others=GONE,
       also="the providers have no connection of the former one left")
def half_open_consumer(m):
    before = m.connections("provider-1", ADDRESSES["consumer"])
    with CAUSES["vanish"].hold(m, "consumer"):
        yield
    yield
    try:
        wait_for("the end of dead links", lambda: m.connections("provider-1", ADDRESSES["consumer"]) <= before)
    except Timeout as e:
        yield str(e)


during("kill-provider", "one provider's sidecar is killed", ("kill", "provider-1"), around=True, others=IN_FLIGHT)
during("kill-app", "one provider's application is killed", ("kill", "app-1"), around=True, others=IN_FLIGHT)
during("kill-consumer", "the consumer's sidecar is killed", ("kill", "consumer"), lasts=2, hedged=GONE, others=GONE)
during("stop-provider", "one provider's sidecar is stopped (SIGSTOP)", ("pause", "provider-1"), around=True, others=UNNOTICED)
during("stop-app", "one provider's application is stopped (SIGSTOP)", ("pause", "app-1"), around=True, others=UNNOTICED)


@fault("disk-full", "the consumer's disk is full, and one provider is killed for good meanwhile", others=IN_FLIGHT,
       also="the cache stays whole, and up to date once there is room; the access log goes on then")
def disk_full(m):
    log = os.path.join(m.disk_of("consumer"), "access.log")
    with m.down("provider-1"):
        with CAUSES["disk-full"].hold(m, "disk"):
            yield
            kept = cached(m)
        logged = os.path.getsize(log)
        yield
        if os.path.getsize(log) == logged:
            yield "the access log got no further line"
        if 'remora_access_log_dropped_total{reason="write"} 0\n' in m.admin("consumer", "/metrics"):
            yield "no line of the access log was lost: the disk was not full"
        if len(kept) != len(PROVIDERS):
            yield f"with the disk full the cache held {kept}"
        try:
            wait_for("the cache to be up to date", lambda: len(cached(m)) == len(PROVIDERS) - 1)
        except Timeout as e:
            yield f"{e}: it holds {cached(m)}"


def cached(m):
    """The endpoints on the consumer's disk."""
    with open(os.path.join(m.disk_of("consumer"), "cache", "compute.json"), encoding="utf-8") as f:
        return [e["Addr"] for e in json.load(f)["endpoints"]]


@fault("clock", "the wall clocks of the consumer and a provider jump by a day: ahead, back by two, and to where they were",
       also="they really did")
def clock(m):
    victims, wrong = ["consumer", "provider-1"], []
    with contextlib.ExitStack() as steps:
        for cause, days in (("clock-ahead", 1), ("clock-back", -1)):
            for name in victims:
                steps.enter_context(CAUSES[cause].hold(m, name))
                _, headers = m.call(name, ADMIN + "/healthz")
                off = parsedate_to_datetime(headers["Date"]).timestamp() - time.time()
                if abs(off - days * DAY) > PATIENCE:
                    wrong.append(f"the clock of {name} is off by {off:.0f} s, not {days} days")
            time.sleep(3)
        yield
    yield
    yield from wrong


@fault("fds", "the consumer's sidecar can open no descriptor more; 20 clients come, and the links to one provider are lost",
       others=IN_FLIGHT, also="these clients are served or closed; later ones are served")
def fds(m):
    with CAUSES["descriptors"].hold(m, "consumer"):
        with m.hosts["consumer"].inside():
            clients = [socket.create_connection(("127.0.0.1", 15001), PATIENCE) for _ in range(20)]
        for c in clients:
            c.sendall(b"POST /compute HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        m.hosts["consumer"].execute("ss", "-K", "dst", ADDRESSES["provider-2"], "dport", ":15006")
        yield
    yield
    if "remora_reactor_accept_errors_total 0\n" in m.admin("consumer", "/metrics"):
        yield "no connection was refused for want of descriptors"
    for c in clients:
        with c, contextlib.suppress(ConnectionResetError):
            response = c.recv(4096)
            if response and not response.startswith(b"HTTP/1.1 200"):
                yield f"a client that waited got {response[:40]!r}"


@fault("etcd-lost", "etcd is killed for 60 leases (at the default of 10 s: ten minutes), "
       "one provider's sidecar meanwhile, and restarted", lasts=60 * LEASE, around=True, others=IN_FLIGHT)
def etcd_lost(m):
    with m.down(*ETCDS):
        time.sleep(10 * LEASE)
        with m.down("provider-1"):
            time.sleep(LEASE)
        yield
    yield


@fault("cold-start", "etcd is killed, then the consumer's sidecar, which is restarted at once", hedged=GONE, others=GONE, around=True,
       also="the cache serves it")
def cold_start(m):
    with m.down(*ETCDS):
        with m.down("consumer"):
            pass
        yield
    yield


@fault("etcd-keys", "all keys in etcd are deleted", lasts=4, around=True)
def etcd_keys(m):
    m.ask_etcd(ETCDS[0], "kv/deleterange", key="AA==", range_end="AA==")  # base64 of \0: from the first key, to the last
    yield
    yield


@fault("etcd-data", "etcd is killed and started again with nothing left of its data", lasts=4, around=True)
def etcd_data(m):
    with m.down(*ETCDS):
        m.erase(*ETCDS)
    yield
    yield


@fault("etcd-leader", "of three etcds the leader is killed", around=True)
def etcd_leader(m):
    with m.down(m.leader()):
        yield
    yield
