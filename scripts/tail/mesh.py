"""Three replicas that freeze now and then, and one way to reach them."""

import json
import subprocess
import time
import urllib.request

from harness import free_ports
from processes import PATIENCE, Failed, Processes
from ways import consumer, envoy, haproxy, provider

REPLICAS = 3

# How the replicas are slow: see remora-lab replica --help.
TROUBLE = ["--mode", "stall", "--median", "1ms", "--sigma", "0.5", "--stall-mean", "2s", "--stall-len", "50ms"]


class Mesh(Processes):
    """Replicas, and "haproxy", "envoy" or "remora" in front of them; a context
    manager. hedge is that way's own word for how it hedges. binaries are the paths
    of the programs by name, seed is that of the replicas' freezes."""

    def __init__(self, binaries, way, hedge, seed):
        self.binaries, self.way, self.hedge, self.seed = binaries, way, hedge, seed

    def start(self):
        ports = iter(free_ports(2 + 2 * REPLICAS))
        self.listen, self.admin = next(ports), next(ports)
        self.replicas, self.links = ([next(ports) for _ in range(REPLICAS)] for _ in range(2))
        for i, port in enumerate(self.replicas, 1):
            cmd = [self.binaries["remora-lab"], "replica", "--listen", f"127.0.0.1:{port}", "--name", f"replica-{i}"]
            self.spawn(f"replica-{i}", cmd + TROUBLE + ["--seed", str(self.seed + i)], port, GOMAXPROCS="1")
        getattr(self, "_" + self.way)()
        self.await_answer(self.listen)

    def _haproxy(self):
        f = self.file("haproxy.cfg", haproxy(self.listen, self.replicas))
        self.spawn("haproxy", [self.binaries["haproxy"], "-db", "-f", f], self.listen)

    def _envoy(self):
        f = self.file("envoy.yaml", envoy(self.listen, self.replicas, self.hedge))
        cmd = [self.binaries["envoy"], "-c", f, "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error"]
        self.spawn("envoy", cmd, self.listen)

    def _remora(self):
        for i, (link, replica) in enumerate(zip(self.links, self.replicas), 1):
            self._sidecar(f"provider-{i}", provider(link, replica), link)
        self._sidecar("consumer", consumer(self.listen, self.admin, self.links, self.hedge), self.listen)

    def _sidecar(self, name, config, port):
        self.spawn(name, [self.binaries["remora"], "run", "-c", self.file(f"{name}.yaml", config)], port)

    def load(self, rate, seconds, *options):
        """Runs an open loop and returns what remora-lab load tells of it."""
        cmd = [self.binaries["remora-lab"], "load", "--rate", str(rate), "--duration", f"{seconds}s", "--warmup", "0s",
               "--connections", "128", "--seed", str(self.seed), "--json", *options, f"http://127.0.0.1:{self.listen}/compute"]
        out = subprocess.run(cmd, capture_output=True, text=True)
        if out.returncode:
            raise Failed(f"{' '.join(cmd)}: {out.stdout}{out.stderr}")
        self.alive()
        return json.loads(out.stdout)

    def reset(self):
        """Starts the freezes anew, at one moment for all, and the counts at 0."""
        epoch = time.time_ns()
        for port in self.replicas:
            call(port, f"/reset?epoch={epoch}", "POST")

    def served(self):
        """The calls that the replicas have worked on, once none is left: the loser of a
        hedge outlives its request."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            stats = [json.loads(call(port, "/stats")) for port in self.replicas]
            if not any(s["in_flight"] for s in stats):
                return sum(s["served"] for s in stats)
            time.sleep(0.02)
        raise Failed(f"the replicas do not come to rest: {stats}")

    def hedging(self):
        """What hedging has done up to now; empty for other proxies."""
        if self.way != "remora":
            return {}
        s = json.loads(call(self.admin, "/hedging"))["services"]["compute"]
        return {"hedges": s["hedges"], "won": s["won"], **{g: n for g, n in s["gates"].items() if g != "open"}}


def call(port, path, method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE) as r:
        return r.read()
