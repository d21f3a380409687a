"""Kills processes of the mesh under load, and not one request may fail.

256 connections send at least REQUESTS requests through the consumer's sidecar and three
providers' to three replicas. Meanwhile a provider's sidecar, a replica and etcd are
killed and started again, etcd once without its data. Each request has a nonce that the
replica sends back. Afterwards no request is pending anywhere, and memory, descriptors
and goroutines are back at their levels from before.
"""

import json
import os
import shutil
import time
import urllib.request

from level import Level, level_at_rest, wait_unpooled
from mesh import LEASE

from harness.load import load, start_load
from harness.process import PATIENCE, wait_for
from harness.suite import table

REQUESTS = int(os.environ.get("REQUESTS", "200000"))
SECONDS = 40  # the load lasts at least so long, so that all faults are within it
LOAD_PATIENCE = 600  # seconds that a slow machine may take for the requests
OPTIONS = ["--closed", "--connections", "256", "--warmup", "0s", "--timeout", "60s"]

# Seconds in which pooled connections close and memory goes back: the runtime collects
# garbage every two minutes at least.
REST = 180

NO_FREEZES = ["--mode", "stall", "--stall-mean", "0", "--median", "1ms"]

# The budget is for retries: a slow machine sends few requests to earn them, and loses as many at a kill.
HEDGE = {"mode": "off", "budget": 1}


class Use(Level):
    """A level with the memory, of which 256 connections leave some. A sidecar that was
    killed is compared with the one before."""

    OTHERS = GOROUTINES = 3

    def above(self, before):
        memory = [f"memory ({before.rss >> 20} -> {self.rss >> 20} MiB)"] * (self.rss > 1.3 * before.rss + (8 << 20))
        return super().above(before) + memory


def faults(m):
    """One kill after another. Each process is back before the next one dies."""
    def kill(p, seconds):
        p.kill()
        time.sleep(seconds)
        p.start()
        time.sleep(2)

    time.sleep(2)
    kill(m.computing[0], 2)          # back before its lease has ended
    kill(m.replicas[1], 2)
    kill(m.etcd, 3)                  # with its data
    m.etcd.kill()
    shutil.rmtree(m.etcd_data)       # and without
    time.sleep(LEASE + 2)
    m.etcd.start()
    time.sleep(4)
    kill(m.computing[1], LEASE + 3)  # away for longer than its lease
    kill(m.replicas[2], 0)


def served(m):
    """The requests of each replica so far."""
    return [json.load(urllib.request.urlopen(f"http://127.0.0.1:{r.port}/stats", timeout=PATIENCE))["served"] for r in m.replicas]


def all_in_use(m, url):
    """Reports whether some requests reach all replicas."""
    before = served(m)
    load(url, "--rate", "100", "--duration", "500ms", "--warmup", "0s")
    return all(b > a for a, b in zip(before, served(m)))


def run(suite, m):
    sidecars = [m.consumer, *m.computing]
    url = f"http://127.0.0.1:{m.egress}/compute"
    load(url, *OPTIONS, "--duration", "4s")  # free lists and pools grow to their size
    for p in m.computing:
        wait_unpooled(p)
    before = [Use(p) for p in sidecars]

    running = start_load(url, *OPTIONS, "--duration", f"{SECONDS}s", "--requests", str(REQUESTS))
    faults(m)
    report = json.loads(running.communicate(timeout=LOAD_PATIENCE)[0])
    print(", ".join(f"{k} {report[k]}" for k in ("requests", "errors", "achieved_rate", "p50_ms", "p99_ms", "max_ms")), flush=True)
    now = [level_at_rest(p, b, REST, Use) for p, b in zip(sidecars, before)]

    suite.check(f"at least {REQUESTS} requests", report["requests"] >= REQUESTS, str(report["requests"]))
    suite.check("no errors", report["errors"] == 0, f"{report['error_kinds']} {report['statuses']}")
    suite.check("every response is a 200", report["statuses"] == {"200": report["requests"]}, str(report["statuses"]))
    suite.attempt("all replicas are in use again", wait_for, "requests to all replicas", lambda: all_in_use(m, url))
    if report["errors"]:
        print("errors of the sidecars:", {p.name: p.metrics("remora_errors_total") for p in sidecars})
    table(("", *Use.COLUMNS), *((p.name, *a.cells(b)) for p, b, a in zip(sidecars, before, now)))
    for p, b, a in zip(sidecars, before, now):
        suite.check(f"{p.name}: nothing is left", not a.above(b), "; ".join(a.above(b)))
