"""Attacks two sidecars in every way that limits and timeouts are there for.

A well-behaved load of modest rate runs through a consumer's and a provider's
sidecar to a replica; its latency counts from the intended send times. Beside it
one attack after another is made on the consumer's HTTP listener, on the
provider's link listener, and by an endpoint that the consumer has dialled. Of
each the table shows the well-behaved load and what the attacked sidecar used.

It fails when a well-behaved request fails, when a sidecar's memory passes the
bound in docs/operations.md, when an attack does not meet the limit it is made
for, or when descriptors, goroutines, buffered bytes or pending requests are left
behind. Latency is shown only.

    attack.py BIN DIR [NAME...]     BIN holds remora and remora-lab, DIR takes the
                                    logs; NAMEs are parts of the attacks' names
"""

import json
import os
import re
import resource
import sys
import time

from harness import PATIENCE, Suite, free_ports, report_of
from level import Level, at_rest, unpooled
from on_http import ATTACKS, BUFFERED, CONNECTIONS
from on_link import ON_ACCEPTOR, ON_DIALER, dialled
from sidecar import get

RATE = 200   # well-behaved requests per second
SECONDS = 4  # of one attack
BOUND = 1.1 * (128 + 2.5 * BUFFERED) + 24  # MiB, as docs/operations.md says

COMMON = """
node: {{id: {name}}}
loops: 2
log: {{level: error}}
admin: {{address: "127.0.0.1:{admin}"}}
limits: {{message: 1MiB, buffered: {buffered}MiB, connections: {connections}}}
timeouts: {{header: 1s, body: 2s, idle: 10s, write: 3s}}
"""

CONSUMER = COMMON + """
listeners: [{{name: egress, address: "127.0.0.1:{listen}", protocol: http}}]
routes: [{{match: {{path: /evil}}, service: evil}}, {{service: compute}}]
services:
  compute: {{discover: static, endpoints: ["127.0.0.1:{to}"], protocol: link, timeout: 20s, connect_timeout: 15s}}
  evil: {{discover: static, endpoints: ["127.0.0.1:{evil}"], protocol: link, timeout: 1s}}
"""

PROVIDER = COMMON + """
listeners: [{{name: ingress, address: "127.0.0.1:{listen}", protocol: link, service: local}}]
services:
  local: {{discover: static, endpoints: ["127.0.0.1:{to}"], protocol: http, max_concurrency: 128, timeout: 20s, idle_timeout: 1s}}
"""


class Mesh:
    """A consumer's sidecar, a provider's, a replica; and the port of an endpoint that attacks."""

    def __init__(self, suite, binaries):
        self.suite = suite
        self.remora = os.path.join(binaries, "remora")
        self.lab = os.path.join(binaries, "remora-lab")
        self.http, self.link, self.evil, replica, *admins = free_ports(6)
        self.replica = suite.process("replica", [
            self.lab, "replica", "--listen", f"127.0.0.1:{replica}", "--mode", "stall", "--stall-mean", "0",
            "--median", "1ms"], replica)
        self.provider = self.sidecar("provider", PROVIDER, listen=self.link, admin=admins[0], to=replica)
        self.consumer = self.sidecar("consumer", CONSUMER, listen=self.http, admin=admins[1], to=self.link, evil=self.evil)
        self.sidecars = [self.consumer, self.provider]
        self.before = {}  # their levels at rest

    def sidecar(self, name, text, listen, admin, **more):
        text = text.format(name=name, listen=listen, admin=admin, buffered=BUFFERED, connections=CONNECTIONS, **more)
        return self.suite.sidecar(name, self.remora, text, listen, admin)

    def start(self):
        for p in (self.replica, self.provider, self.consumer):
            p.start()

    def rest(self):
        """Takes the levels of sidecars that have worked, and do so no more."""
        unpooled(self.provider)
        self.before = {s: Level(s) for s in self.sidecars}

    def load(self, seconds):
        """Starts the well-behaved load, whose report is JSON; a second of it is not counted."""
        return report_of([self.lab, "load", "--rate", str(RATE), "--connections", "32", "--max-connections", "32", "--warmup", "1s",
                          "--json", "--timeout", "20s", "--duration", f"{seconds}s", f"http://127.0.0.1:{self.http}/compute"])


def refusals(p):
    """What the sidecar turned away, by name."""
    metrics = get(p, "/metrics")
    counts = {code: int(float(n)) for code, n in re.findall(r'^remora_errors_total\{code="(.*)"\} (\S+)$', metrics, re.M)}
    for name, what in (("shed_connections", "connections shed"), ("write_timeouts", "write timeouts"),
                       ("reactor_refused", "connections refused")):
        counts[what] = int(float(re.search(rf"^remora_{name}_total (\S+)$", metrics, re.M).group(1)))
    return counts


class Table:
    """One row for each attack."""

    COLUMNS = ("attack", "on", "requests", "errors", "P50 ms", "P99 ms", "max ms", "RSS MiB", "descriptors", "goroutines", "met")
    FORM = "{:30} {:8} {:>8} {:>6} {:>7} {:>7} {:>7}  {:16} {:11} {:10} {}"

    def __init__(self):
        self.row(*self.COLUMNS)

    def row(self, *cells):
        print(self.FORM.format(*cells), flush=True)


def run(suite, mesh, table, name, p, attack, meets):
    """One attack on sidecar p."""
    before = mesh.before
    rss, counts = p.rss(), refusals(p)
    for s in mesh.sidecars:
        s.forget_peak()
    load = mesh.load(SECONDS)
    time.sleep(1)  # the load has its connections before the attack takes what is left
    attack(time.monotonic() + SECONDS - 0.5)
    out, _ = load.communicate(timeout=PATIENCE)
    report = json.loads(out)
    after = {s: at_rest(s, before[s]) for s in mesh.sidecars}
    met = {k: n - counts.get(k, 0) for k, n in refusals(p).items() if n > counts.get(k, 0)}
    table.row(
        name, p.name, report["requests"], report["errors"], *(f"{report[k]:.1f}" for k in ("p50_ms", "p99_ms", "max_ms")),
        f"{rss / 1024:.0f} {p.peak() / 1024:.0f} {p.rss() / 1024:.0f}",
        f"{before[p].fds} {after[p].fds}", f"{before[p].goroutines} {after[p].goroutines}",
        ", ".join(f"{k} {n}" for k, n in sorted(met.items(), key=lambda i: -i[1])))
    bad = []
    if report["errors"] or report["statuses"] != {"200": report["requests"]}:
        bad.append(f"well-behaved requests failed: {report['error_kinds']} {report['statuses']}")
    if meets and meets not in met:
        bad.append(f"the attack did not meet {meets}")
    for s in mesh.sidecars:
        if s.peak() > BOUND * 1024:
            bad.append(f"{s.name}: {s.peak() / 1024:.0f} MiB, over the bound")
        bad += [f"{s.name}: left behind: {what}" for what in after[s].above(before[s])]
    if bad:
        suite.failures.append(f"{name}: " + "; ".join(bad))
    else:
        suite.passed += 1


def attacks(mesh):
    """(name, sidecar, attack, the limit it meets) of all."""
    yield "none", mesh.consumer, lambda end: time.sleep(end - time.monotonic()), None
    for name, (attack, meets) in ATTACKS.items():
        yield name, mesh.consumer, lambda end, a=attack: a(mesh.http, end), meets
    for name, attack in ON_ACCEPTOR.items():
        yield "link: " + name, mesh.provider, lambda end, a=attack: a(mesh.link, end), None
    for name, acts in ON_DIALER.items():
        yield name, mesh.consumer, lambda end, a=acts: dialled(mesh.http, end, mesh.evil, *a), None


def main():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    suite = Suite(sys.argv[2])
    mesh = Mesh(suite, sys.argv[1])
    mesh.start()
    mesh.load(1).communicate(timeout=PATIENCE)
    mesh.rest()
    print(f"limits.buffered {BUFFERED} MiB; bound of memory {BOUND:.0f} MiB; RSS before, peak, after\n")
    table = Table()
    for name, p, attack, meets in attacks(mesh):
        if not sys.argv[3:] or any(part in name for part in sys.argv[3:]):
            run(suite, mesh, table, name, p, attack, meets)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
