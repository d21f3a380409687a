"""The meshes of profiles.py that are more than a chain of sidecars: three providers, called
with hedging over HTTP, or as Dubbo."""

import subprocess

from harness import free_ports
from processes import Failed, Processes

REPLICAS = 3


def config(admin, listen, kind, upstream):
    return f"""\
loops: 1
log: {{level: warn, format: text}}
admin: {{address: "127.0.0.1:{admin}"}}
listeners: [{{name: in, address: "127.0.0.1:{listen}", protocol: {kind}, service: out}}]
services:
  out: {{discover: static, connect_timeout: 10s, max_pending: 4096, {upstream}}}
"""


class Mesh(Processes):
    """Replicas, a sidecar before each, and one for all; a context manager. replica are the
    arguments of each replica, given its number; upstream is what a provider's sidecar calls,
    service what more the consumer's service says. ready is a request's body and its type.
    admin are the admin ports of the first sidecars, the consumer's first: profiled of them,
    or all."""

    def __init__(self, tools, replica, upstream, service, ready=(b"{}", "application/json"), profiled=None):
        self.tools, self.replica, self.upstream, self.service = tools, replica, upstream, service
        self.ready, self.profiled = ready, profiled

    def start(self):
        ports = iter(free_ports(2 + 3 * REPLICAS))
        listen, admin = next(ports), next(ports)
        self.admin, links = [admin], []
        for i in range(1, REPLICAS + 1):
            app, link, own = (next(ports) for _ in range(3))
            cmd = [self.tools.lab, "replica", "--listen", f"127.0.0.1:{app}", *self.replica(i)]
            self.spawn(f"replica-{i}", cmd, app, GOMAXPROCS="1")
            self._sidecar(f"provider-{i}", own, link, "link", f'endpoints: ["127.0.0.1:{app}"], {self.upstream}')
            links.append(f'"127.0.0.1:{link}"')
            self.admin.append(own)
        self._sidecar("consumer", admin, listen, "http", f"endpoints: [{', '.join(links)}], protocol: link, {self.service}")
        self.url = f"http://127.0.0.1:{listen}/compute"
        self.await_answer(listen, *self.ready)
        self.admin = self.admin[:self.profiled]

    def _sidecar(self, name, admin, listen, kind, upstream):
        path = self.file(f"{name}.yaml", config(admin, listen, kind, upstream))
        self.spawn(name, [self.tools.remora, "run", "-c", path], listen)

    def load(self, rate, seconds):
        """Runs an open loop."""
        cmd = [self.tools.lab, "load", "--rate", str(rate), "--duration", f"{seconds}s", "--warmup", "0s",
               "--connections", "128", "--json", self.url]
        out = subprocess.run(cmd, capture_output=True, text=True)
        if out.returncode:
            raise Failed(f"{' '.join(cmd)}: {out.stdout}{out.stderr}")
        self.alive()


def hedged(tools):
    """Replicas that freeze now and then, behind a consumer that hedges."""
    stall = ["--mode", "stall", "--median", "1ms", "--sigma", "0.5", "--stall-mean", "2s", "--stall-len", "50ms"]
    return Mesh(tools, lambda i: [*stall, "--seed", str(i + 1)], "protocol: http, max_concurrency: 64",
                "timeout: 2s, idempotent: true, hedge: {mode: on}", profiled=1)


def dubbo(tools):
    """Dubbo providers that take no time."""
    return Mesh(tools, lambda _: ["--protocol", "dubbo", "--mode", "fast"], "protocol: dubbo, serialization: fastjson, max_concurrency: 200",
                "max_concurrency: 0", (b"interface=com.example.Hello&method=hash&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=a",
                                       "application/x-www-form-urlencoded"))
