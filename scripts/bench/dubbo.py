"""What it costs to make Dubbo calls of HTTP requests: forms into a consumer's
sidecar, fastjson out of three providers' sidecars, each with a provider of the
lab behind it."""

import sys

from harness import free_ports
from processes import Processes
from stack import cpu, wrk

# What the providers are like, the connections of the closed loop, and seconds.
LOADS = [
    ("64 connections, calls that take no time", ["--mode", "fast"], 64, 4),
    ("512 connections, calls of 50 ms", ["--workers", "200"], 512, 6),
]

COLUMNS = [
    ("rate", "requests/s", "{:,.0f}"),
    ("p50", "p50 µs", "{:,.0f}"),
    ("p99", "p99 µs", "{:,.0f}"),
    ("consumer", "consumer, CPU µs/request", "{:.1f}"),
    ("providers", "providers, together", "{:.1f}"),
    ("all", "all", "{:.1f}"),
]

PROVIDERS = 3


def sidecar_config(admin, listener, upstream, limit):
    return f"""\
loops: 1
log: {{level: warn, format: text}}
admin: {{address: "127.0.0.1:{admin}"}}
listeners: [{{name: in, {listener}, service: out}}]
services:
  out: {{discover: static, connect_timeout: 10s, max_pending: 4096, {upstream}, max_concurrency: {limit}}}
"""


class Mesh(Processes):
    def __init__(self, tools, replica):
        self.tools, self.replica = tools, replica

    def start(self):
        ports = free_ports(2 + 3 * PROVIDERS)
        port, admin = ports[:2]
        links = []
        self.providers = []
        for i in range(PROVIDERS):
            app, link, own = ports[2 + 3 * i : 5 + 3 * i]
            self.spawn("replica", [self.tools.lab, "replica", "--protocol", "dubbo", *self.replica,
                                   "--listen", f"127.0.0.1:{app}"], app, GOMAXPROCS="1")
            links.append(f'"127.0.0.1:{link}"')
            self.providers.append(self._sidecar(
                f"provider-{i}", link, own, "link", f'endpoints: ["127.0.0.1:{app}"], protocol: dubbo, serialization: fastjson', 200))
        self.consumer = self._sidecar("consumer", port, admin, "http", f"endpoints: [{', '.join(links)}], protocol: link", 0)
        self.url = f"http://127.0.0.1:{port}/"
        self.await_answer(port, b"interface=com.example.Hello&method=hash&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=a",
                          "application/x-www-form-urlencoded")

    def _sidecar(self, name, listen, admin, kind, upstream, limit):
        text = sidecar_config(admin, f'address: "127.0.0.1:{listen}", protocol: {kind}', upstream, limit)
        return self.spawn(name, [self.tools.remora, "run", "-c", self.file(f"{name}.yaml", text)], listen)


def run(tools, rounds):
    """Returns a list of samples."""
    samples = []
    for n in range(1, rounds + 1):
        for name, replica, connections, seconds in LOADS:
            print(f"round {n} of {rounds}: dubbo, {name}", file=sys.stderr)
            with Mesh(tools, replica) as mesh:
                wrk(mesh.url, connections, 2, "form.lua")
                before = cpu([mesh.consumer]), cpu(mesh.providers)
                r = wrk(mesh.url, connections, seconds, "form.lua")
                mesh.alive()
                consumer, providers = (
                    (cpu(p) - b) / r["requests"] * 1e6 for p, b in zip(([mesh.consumer], mesh.providers), before))
                samples.append({
                    "round": n, "row": "dubbo", "load": name, "consumer": consumer, "providers": providers,
                    "all": consumer + providers, "rate": r["requests"] / r["seconds"], **r,
                })
    return samples


def report(samples, spread, table):
    print("\nHTTP forms with 0 to 1,023 characters in, Dubbo (fastjson) out, three providers; each with a sidecar")
    body = []
    for name, *_ in LOADS:
        mine = [s for s in samples if s["load"] == name]
        body.append([name] + [spread([s[k] for s in mine], form) for k, _, form in COLUMNS])
    print(table([""] + [c[1] for c in COLUMNS], body))
