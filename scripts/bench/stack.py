"""What bench.py and cost.py measure: a replica, and the sidecars in front of it,
as processes of this machine."""

import glob
import json
import os
import re
import subprocess

from harness import free_ports
from observer import Observer
from processes import PATIENCE, Failed, Processes, executable, which

HERE = os.path.dirname(os.path.abspath(__file__))


def certificates(directory):
    """A key, a certificate of the name "bench", and the authority that signed it
    (itself), as a tls block; made once for a directory."""
    cert, key = os.path.join(directory, "cert.pem"), os.path.join(directory, "key.pem")
    if not os.path.exists(cert):
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
             "-subj", "/CN=bench", "-addext", "subjectAltName=DNS:bench", "-keyout", key, "-out", cert],
            capture_output=True, text=True)
        if made.returncode:
            raise Failed(f"openssl: {made.stderr}")
    return f"{{cert: {cert}, key: {key}, ca: {cert}, peers: [bench]}}"


def remora_config(listen, listen_kind, upstream, upstream_kind, admin, listen_tls="{}", upstream_tls="{}"):
    """The configuration of a sidecar with one listener and one upstream."""
    return f"""\
loops: 1
log: {{level: warn, format: text}}
admin: {{address: "127.0.0.1:{admin}"}}
listeners: [{{name: in, address: "127.0.0.1:{listen}", protocol: {listen_kind}, service: out, tls: {listen_tls}}}]
services:
  out:
    discover: static
    endpoints: ["127.0.0.1:{upstream}"]
    protocol: {upstream_kind}
    connect_timeout: 10s
    tls: {upstream_tls}
    max_pending: 4096
"""


def haproxy_config(listen, upstreams):
    """One thread that passes requests on, to the upstream with the fewest
    connections in use."""
    servers = "".join(f"    server s{port} 127.0.0.1:{port} maxconn 4096\n" for port in upstreams)
    return f"""\
global
    nbthread 1
    maxconn 8192
defaults
    mode http
    timeout connect 1s
    timeout client 1m
    timeout server 1m
    option http-keep-alive
    http-reuse always
frontend in
    bind 127.0.0.1:{listen}
    default_backend out
backend out
    balance leastconn
{servers}"""


class Tools:
    """Where the programs are; None for those that are not there."""

    def __init__(self, binaries, peers):
        self.remora = os.path.join(binaries, "remora")
        self.lab = os.path.join(binaries, "remora-lab")
        self.replica = executable(os.path.join(peers, "bin", "backend"))
        self.relay = executable(os.path.join(peers, "bin", "relay"))
        self.haproxy = which("haproxy")


class Stack(Processes):
    """A replica and a chain of proxies before it; a context manager. proxies are
    the names of the chain, the client's side first: "relay", "haproxy", "remora"
    (HTTP in, HTTP out), "consumer" (HTTP in, link out), "provider" (link in,
    HTTP out), and the latter two with "-tls" for TLS on the link, or with "-observed"
    for an access log, metrics that are scraped and traces (observer.py)."""

    def __init__(self, tools, proxies):
        self.tools, self.names = tools, proxies
        self.proxies = []  # processes, in the order of names
        self.admin = []  # their admin ports; 0 for those that have none
        self.observer = None

    def __exit__(self, *error):
        super().__exit__(*error)
        if self.observer and not self.observer.close() and error == (None,) * 3:
            raise Failed(f"{' and '.join(self.names)}: nothing was observed")

    def start(self):
        n = len(self.names)
        ports = free_ports(2 * n + 1)
        self.admin = ports[n + 1 :]
        self.url = f"http://127.0.0.1:{ports[0]}/compute"
        if any(name.endswith("-observed") for name in self.names):
            self.observer = Observer(self.admin)
        self._replica(ports[n])
        for i in reversed(range(n)):
            self.proxies.insert(0, self._proxy(self.names[i], ports[i], ports[i + 1], self.admin[i]))
        self.await_answer(ports[0])

    def _replica(self, port):
        addr = f"127.0.0.1:{port}"
        if self.tools.replica:
            return self.spawn("replica", [self.tools.replica], port, ADDR=addr, GOMAXPROCS="1")
        return self.spawn("replica", [self.tools.lab, "replica", "--mode", "fast", "--listen", addr], port, GOMAXPROCS="1")

    def _proxy(self, name, listen, upstream, admin):
        if name == "relay":
            return self.spawn(name, [self.tools.relay, str(listen), str(upstream)], listen)
        if name == "haproxy":
            f = self.file(f"haproxy-{listen}.cfg", haproxy_config(listen, [upstream]))
            return self.spawn(name, [self.tools.haproxy, "-db", "-f", f], listen)
        kind, _, manner = name.partition("-")
        kinds = {"remora": ("http", "http"), "consumer": ("http", "link"), "provider": ("link", "http")}[kind]
        tls = [certificates(self.dir.name) if manner == "tls" and k == "link" else "{}" for k in kinds]
        config = remora_config(listen, kinds[0], upstream, kinds[1], admin, *tls)
        if manner == "observed":
            config += self.observer.config(os.path.join(self.dir.name, f"{name}.log"))
        f = self.file(f"{name}.yaml", config)
        return self.spawn(name, [self.tools.remora, "run", "-c", f], listen)


def wrk(url, connections, seconds, script="post.lua"):
    """Runs wrk, a closed loop, and returns what result.lua reports."""
    cmd = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", f"{PATIENCE}s", "-s", os.path.join(HERE, script), url]
    out = subprocess.run(cmd, capture_output=True, text=True)
    m = re.search(r"^RESULT (.*)$", out.stdout, re.M)
    if out.returncode or not m:
        raise Failed(f"{' '.join(cmd)}: {out.stdout}{out.stderr}")
    r = json.loads(m[1])
    if r["requests"] == 0:
        raise Failed(f"{' '.join(cmd)}: no request was answered")
    return r


def open_loop(lab, url, rate, seconds):
    """Runs the lab's load generator, which counts latency from the time that each
    request was meant to be sent, and returns the same as wrk."""
    cmd = [lab, "load", "--rate", str(rate), "--duration", f"{seconds}s", "--warmup", "0s", "--no-nonce", "--json", url]
    out = subprocess.run(cmd, capture_output=True, text=True)
    if out.returncode:
        raise Failed(f"{' '.join(cmd)}: {out.stdout}{out.stderr}")
    r = json.loads(out.stdout)
    us = {k: r[f"{k}_ms"] * 1e3 for k in ("p50", "p99", "p999", "max")}
    return {"requests": r["requests"], "seconds": r["seconds"], "errors": r["errors"], **us}


def cpu(procs):
    """Run time of all threads of the processes, in seconds. It is the scheduler's
    count, in nanoseconds: /proc/PID/stat counts in ticks of 10 ms."""
    total = 0
    for p in procs:
        for f in glob.glob(f"/proc/{p.pid}/task/*/schedstat"):
            try:
                with open(f) as s:
                    total += int(s.read().split()[0])
            except OSError:
                pass  # the thread has ended
    return total / 1e9
