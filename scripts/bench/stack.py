"""What cost.py measures: a replica, and the sidecars in front of it, as processes of
this machine; and the load, which dubbo.py has too."""

import json
import os
import re
import subprocess

from harness import free_ports
from processes import PATIENCE, Failed, Processes

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lab", "bench", "wrk")


def remora_config(listen, listen_kind, upstream, upstream_kind, admin, tls):
    """The configuration of a sidecar with one listener and one upstream; tls is that of
    the link."""
    return f"""\
loops: 1
log: {{level: warn, format: text}}
admin: {{address: "127.0.0.1:{admin}"}}
listeners: [{{name: in, address: "127.0.0.1:{listen}", protocol: {listen_kind}, service: out, tls: {tls if listen_kind == "link" else "{}"}}}]
services:
  out:
    discover: static
    endpoints: ["127.0.0.1:{upstream}"]
    protocol: {upstream_kind}
    tls: {tls if upstream_kind == "link" else "{}"}
    connect_timeout: 10s
    max_pending: 4096
"""


class Tools:
    """Where the programs are."""

    def __init__(self, binaries):
        self.remora = os.path.join(binaries, "remora")
        self.lab = os.path.join(binaries, "remora-lab")


# What a sidecar listens for, and what it speaks to its upstream.
KINDS = {"single": ("http", "http"), "consumer": ("http", "link"), "provider": ("link", "http")}


class Stack(Processes):
    """A replica, and the sidecars of chain, names of KINDS, before it; a context manager.
    proxies are the processes of the sidecars, admin their admin ports; tls is the block
    of the link's configuration."""

    def __init__(self, tools, chain, tls="{}"):
        self.tools, self.chain, self.tls = tools, chain, tls

    def start(self):
        n = len(self.chain)
        ports = free_ports(2 * n + 1)
        way, self.admin = ports[: n + 1], ports[n + 1 :]  # each sidecar listens, the replica last
        self.url = f"http://127.0.0.1:{way[0]}/compute"
        self.spawn("replica", [self.tools.lab, "replica", "--mode", "fast", "--listen", f"127.0.0.1:{way[n]}"], way[n], GOMAXPROCS="1")
        self.proxies = []
        for i in reversed(range(n)):
            name = self.chain[i]
            listen_kind, upstream_kind = KINDS[name]
            self.proxies.insert(0, self._sidecar(name, way[i], listen_kind, way[i + 1], upstream_kind, self.admin[i]))
        self.await_answer(way[0])

    def _sidecar(self, name, listen, listen_kind, upstream, upstream_kind, admin):
        config = remora_config(listen, listen_kind, upstream, upstream_kind, admin, self.tls)
        return self.spawn(name, [self.tools.remora, "run", "-c", self.file(f"{name}.yaml", config)], listen)


def wrk(url, connections, seconds, script="post.lua"):
    """Runs wrk, a closed loop, and returns what result.lua reports."""
    cmd = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", f"{PATIENCE}s", "-s", os.path.join(SCRIPTS, script), url]
    try:
        out = subprocess.run(cmd, capture_output=True, text=True, timeout=seconds + PATIENCE)
    except subprocess.TimeoutExpired as e:
        raise Failed(f"{' '.join(cmd)}: not done within {e.timeout} s") from e
    m = re.search(r"^RESULT (.*)$", out.stdout, re.M)
    if out.returncode or not m:
        raise Failed(f"{' '.join(cmd)}: {out.stdout}{out.stderr}")
    r = json.loads(m[1])
    if r["requests"] == 0:
        raise Failed(f"{' '.join(cmd)}: no request was answered")
    return r
