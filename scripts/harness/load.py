"""Load generators, and a chain of sidecars to measure with them."""

import contextlib
import json
import os
import re
import subprocess

from harness.process import PATIENCE, Failed, die_with_parent, run, tool
from harness.sidecar import Sidecar

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lab", "bench", "wrk")


def start_load(url, *options):
    """Starts remora-lab load. Its report is JSON on standard output."""
    return subprocess.Popen([tool("remora-lab"), "load", "--json", *options, url], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, preexec_fn=die_with_parent)


def load(url, *options):
    """Runs remora-lab load, and returns its report."""
    return json.loads(run([tool("remora-lab"), "load", "--json", *options, url], seconds=None).stdout)


def wrk(url, connections, seconds, script="post.lua"):
    """Runs wrk, a closed loop, and returns what result.lua reports."""
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", f"{PATIENCE}s", "-s",
            os.path.join(SCRIPTS, script), url]
    out = run(argv, seconds=seconds + PATIENCE).stdout
    m = re.search(r"^RESULT (.*)$", out, re.M)
    report = json.loads(m[1]) if m else {}
    if not report.get("requests"):
        raise Failed(f"{' '.join(argv)}: no response: {out}")
    return report


# What a sidecar of a chain listens for, and what it speaks to its upstream.
KINDS = {"single": ("http", "http"), "consumer": ("http", "link"), "provider": ("link", "http")}


@contextlib.contextmanager
def chain(suite, names, tls=None):
    """Yields the sidecars of these KINDS, one after the other in front of a replica, and the URL of the first."""
    app = suite.replica("replica", "--mode", "fast", env={"GOMAXPROCS": "2"}).start()
    sidecars, to = [], app.port
    try:
        for name in reversed(names):
            listens_for, speaks = KINDS[name]
            p = Sidecar(suite, name, loops=1)
            p.service("out", speaks, to, max_pending=4096, **({"tls": tls} if tls and speaks == "link" else {}))
            to = p.listener(listens_for, "out", **({"tls": tls} if tls and listens_for == "link" else {}))
            sidecars.insert(0, p.start())
        yield sidecars, f"http://127.0.0.1:{to}/compute"
        if ended := [p.name for p in suite.processes if p.ended()]:
            raise Failed(f"{', '.join(ended)} ended")
    finally:
        suite.stop()
