"""What it costs to make Dubbo calls of HTTP requests: forms into a consumer's
sidecar, fastjson out of three providers' sidecars, each with a provider of the
lab behind it. See scripts/bench-dubbo.sh."""

import argparse
import json
import os
import statistics
import sys
import time

from harness import free_ports, kernel
from processes import Failed, Processes
from stack import Tools, wrk

# What the providers are like, the seconds that a call takes there, the connections
# of the closed loop, and seconds.
POOL = ["--workers", "200"]
LOADS = [
    ("64 connections, calls that take no time", ["--mode", "fast"], 0, 64, 4),
    ("128 connections, calls of 50 ms", POOL, 0.05, 128, 6),
    ("256 connections, calls of 50 ms", POOL, 0.05, 256, 6),
    ("512 connections, calls of 50 ms", POOL, 0.05, 512, 6),
]

COLUMNS = [
    ("rate", "requests/s", "{:,.0f}"),
    ("share", "% of the ceiling", "{:.1f}"),
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
        self.admin = [admin, *ports[4::3]]
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
        for name, replica, takes, connections, seconds in LOADS:
            print(f"round {n} of {rounds}: {name}", file=sys.stderr)
            with Mesh(tools, replica) as mesh:
                wrk(mesh.url, connections, 2, "form.lua")
                before = cpu([mesh.consumer]), cpu(mesh.providers)
                r = wrk(mesh.url, connections, seconds, "form.lua")
                mesh.alive()
                consumer, providers = (
                    (cpu(p) - b) / r["requests"] * 1e6 for p, b in zip(([mesh.consumer], mesh.providers), before))
                rate = r["requests"] / r["seconds"]
                samples.append({
                    "round": n, "load": name, "consumer": consumer, "providers": providers,
                    "all": consumer + providers, "rate": rate, **r,
                } | ({"share": 100 * rate * takes / connections} if takes else {}))
    return samples


def cpu(procs):
    """Run time of all threads of the processes, in seconds, by the CPU-time clock of
    each (clock_getcpuclockid(3)). /proc/PID/stat counts in ticks of 10 ms."""
    scheduled = 2  # the scheduler's count: CPUCLOCK_SCHED
    return sum(time.clock_gettime(~p.pid << 3 | scheduled) for p in procs)


def spread(values, form):
    """Median [min..max]."""
    low, middle, high = (form.format(f(values)) for f in (min, statistics.median, max))
    return f"{middle} [{low}..{high}]"


def table(head, body):
    """Lines of text, columns aligned."""
    width = [max(len(r[i]) for r in [head] + body) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(r, width)).rstrip() for r in [head] + body)


def report(samples, rounds):
    print("HTTP forms with 0 to 1,023 characters in, Dubbo (fastjson) out, three providers; each with a sidecar of one loop")
    print(f"Median [min..max] of {rounds} rounds; {os.cpu_count()} CPUs for load, sidecars and providers together. "
          f"Linux {kernel()}, load average {os.getloadavg()[0]:.1f}.")
    print("The ceiling is what callers get who wait for their answers and for nothing else: connections / 50 ms.")
    body = []
    for name, *_ in LOADS:
        mine = [s for s in samples if s["load"] == name]
        body.append([name] + [spread([s[k] for s in mine], form) if k in mine[0] else "" for k, _, form in COLUMNS])
    print(table([""] + [c[1] for c in COLUMNS], body))


def main():
    a = argparse.ArgumentParser(prog="scripts/bench-dubbo.sh", description=__doc__)
    a.add_argument("rounds", nargs="?", type=int, default=3)
    a.add_argument("--json", metavar="FILE", help="write all samples there too")
    a.add_argument("--binaries", required=True, help=argparse.SUPPRESS)
    o = a.parse_args()
    samples = run(Tools(o.binaries), o.rounds)
    report(samples, o.rounds)
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"cpus": os.cpu_count(), "kernel": kernel(), "samples": samples}, f, indent=1)
    if failed := sum(s["errors"] for s in samples):
        raise Failed(f"{failed} requests failed")


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        sys.exit(f"bench-dubbo: {e}")
