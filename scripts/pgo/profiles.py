"""Takes CPU profiles of sidecars under load from their admin APIs, one load after the
other. See ../pgo.sh and ../flame.sh.

    profiles.py SECONDS OUT [LOAD]    SECONDS is the length of each profile; of a single
                                      LOAD the profiles are flame graphs
"""

import concurrent.futures
import contextlib
import os
import sys
import time

from harness.load import chain, load, wrk
from harness.process import PATIENCE, Failed, at, run, tool
from harness.sidecar import Sidecar
from harness.suite import Suite

# Load before and after a profile, in seconds: within it, connections are open and
# hedging has learned its delay.
AROUND = 2

ENDPOINTS = 3

FREEZES = ["--mode", "stall", "--median", "1ms", "--sigma", "0.5", "--stall-mean", "2s", "--stall-len", "50ms"]


def closed(url, seconds, script="post.lua"):
    if failed := wrk(url, 64, seconds, script)["errors"]:
        raise Failed(f"{failed} requests failed")


def open_loop(url, seconds, rate, *options):
    load(url, "--rate", str(rate), "--warmup", "0s", "--duration", f"{seconds}s", *options)


@contextlib.contextmanager
def mesh(suite, replica, protocol, local, **consumer):
    """Yields a consumer's sidecar with three providers', and its URL. local is the providers' service, by protocol."""
    try:
        links, sidecars = [], []
        for i in range(1, ENDPOINTS + 1):
            app = suite.replica(f"replica-{i}", *replica, "--seed", str(i), env={"GOMAXPROCS": "2"}).start()
            p = Sidecar(suite, f"provider-{i}", loops=1)
            p.service("local", protocol, app.port, **local)
            links.append(p.listener("link", "local"))
            sidecars.append(p.start())
        p = Sidecar(suite, "consumer", loops=1)
        p.service("compute", "link", *links, **consumer)
        port = p.listener("http", "compute")
        yield [p.start(), *sidecars], f"http://127.0.0.1:{port}/compute"
    finally:
        suite.stop()


def loads(suite):
    """Name, sidecars, and their load. All take the same time: a load counts for as much as it
    keeps its sidecars busy."""
    two = ["consumer", "provider"]
    return [
        ("one-hop", chain(suite, ["single"]), closed),
        ("two-hops", chain(suite, two), closed),
        ("tls", chain(suite, two, suite.certificates("pgo")), closed),
        # So few requests that each is a wake-up of its own.
        ("low-rate", chain(suite, two), lambda url, seconds: open_loop(url, seconds, 2000)),
        ("hedged", mesh(suite, FREEZES, "http", {"max_concurrency": 64}, timeout="2s", idempotent=True,
                        hedge={"mode": "on"}), lambda url, seconds: open_loop(url, seconds, 1000, "--connections", "128")),
        ("dubbo", mesh(suite, ["--protocol", "dubbo", "--mode", "fast"], "dubbo",
                       {"serialization": "fastjson", "max_concurrency": 200}, max_pending=4096),
         lambda url, seconds: closed(url, seconds, "form.lua")),
    ]


def fetch(sidecar, seconds, file):
    run([tool("remora"), "profile", "--admin", at(sidecar.admin), "--seconds", str(seconds), "-o", file], seconds=seconds + PATIENCE)


def main():
    seconds, out, only = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    for name, servers, start in loads(Suite()):
        if only and name not in only:
            continue
        print(f"{name}: {seconds} s", file=sys.stderr)
        with servers as (sidecars, url), concurrent.futures.ThreadPoolExecutor() as pool:
            running = pool.submit(start, url, seconds + 2 * AROUND)
            time.sleep(AROUND)
            fetching = [pool.submit(fetch, p, seconds, os.path.join(out, f"{name}-{p.name}.{'svg' if only else 'pprof'}"))
                        for p in (sidecars[:1] if name == "hedged" else sidecars)]
            for each in [*fetching, running]:
                each.result()


if __name__ == "__main__":
    main()
