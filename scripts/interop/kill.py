"""Kills processes of a mesh under load, and looks at what that costs: nothing.

256 connections send at least 200,000 requests through one consumer sidecar and
three provider sidecars to three replicas, while a provider's sidecar, a replica
and etcd are killed (SIGKILL) and started again, etcd once with nothing left of
its data. The generator gives each request a nonce that the replica sends back.
Afterwards no request is pending anywhere, and memory, descriptors and
goroutines are back where they were.

    kill.py BIN DIR      BIN holds remora and remora-lab, DIR takes the logs
"""

import json
import os
import re
import shutil
import sys
import time
import urllib.request

from harness import PATIENCE, Suite, free_ports, report_of, wait_for
from level import Level, at_rest
from sidecar import get

CONNECTIONS = 256
REQUESTS = int(os.environ.get("REQUESTS", "200000"))
SECONDS = 40  # the load lasts at least so long, so that all faults are within it
LOAD_PATIENCE = 600  # seconds that a slow machine may take for the requests
LEASE = 5     # seconds; an endpoint that was killed leaves etcd after these

CONSUMER = """
node: {{id: consumer}}
admin: {{address: "127.0.0.1:{admin}"}}
registry: {{etcd: {{endpoints: ["127.0.0.1:{etcd}"]}}}}
listeners: [{{name: egress, address: "127.0.0.1:{listen}", protocol: http}}]
routes: [{{service: compute}}]
services:
  compute:
    discover: etcd
    protocol: link
    timeout: 30s
    connect_timeout: 10s
    idempotent: true
    retry: {{attempts: 2, on: [connect, refused, reset]}}
    hedge: {{budget: 1}} # of retries: a slow machine sends few requests to earn them, and loses as many at a kill
"""

PROVIDER = """
node: {{id: provider-{number}}}
admin: {{address: "127.0.0.1:{admin}"}}
registry: {{etcd: {{endpoints: ["127.0.0.1:{etcd}"], lease_ttl: {lease}s}}}}
listeners: [{{name: ingress, address: "127.0.0.1:{listen}", protocol: link, service: local}}]
services:
  local: {{discover: static, endpoints: ["127.0.0.1:{replica}"], protocol: http, connect_timeout: 10s, max_concurrency: 128}}
register: [{{service: compute, listener: ingress, advertise: "127.0.0.1:{listen}"}}]
"""


def say(text):
    print(f"{time.monotonic() - START:6.1f} s  {text}", flush=True)


class Mesh:
    """etcd, replicas, provider sidecars and the consumer's."""

    def __init__(self, suite, binaries):
        self.suite = suite
        self.lab = os.path.join(binaries, "remora-lab")
        etcd, peer, self.listen, *ports = free_ports(13)
        admins, links, replicas = ports[:4], ports[4:7], ports[7:10]
        self.data = os.path.join(suite.dir, "etcd")
        client = f"http://127.0.0.1:{etcd}"
        self.etcd = suite.process("etcd", [
            "etcd", "--data-dir", self.data, "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-cluster", f"default=http://127.0.0.1:{peer}"], etcd)
        self.replicas = [suite.process(f"replica-{i + 1}", [
            self.lab, "replica", "--listen", f"127.0.0.1:{port}", "--mode", "stall", "--stall-mean", "0",
            "--median", "1ms", "--name", f"replica-{i + 1}"], port) for i, port in enumerate(replicas)]
        remora = os.path.join(binaries, "remora")
        self.providers = [suite.sidecar(
            f"provider-{i + 1}", remora,
            PROVIDER.format(number=i + 1, admin=admins[i], etcd=etcd, lease=LEASE, listen=links[i], replica=port),
            links[i], admins[i]) for i, port in enumerate(replicas)]
        self.consumer = suite.sidecar("consumer", remora, CONSUMER.format(
            admin=admins[3], etcd=etcd, listen=self.listen), self.listen, admins[3])
        self.sidecars = [self.consumer, *self.providers]

    def start(self):
        for p in [self.etcd, *self.replicas, *self.providers, self.consumer]:
            p.start()
        for replica in self.replicas:
            wait_for(f"the consumer to reach {replica.name}", PATIENCE, lambda: self.reaches(replica.name))

    def reaches(self, name):
        """Tells whether a request to the consumer was answered by a replica."""
        url = f"http://127.0.0.1:{self.listen}/stats"
        try:
            with urllib.request.urlopen(url, timeout=20) as r:
                return json.load(r)["name"] == name
        except OSError:
            return False

    def load(self, *options):
        """Starts a load whose report is JSON."""
        return report_of([self.lab, "load", "--closed", "--connections", str(CONNECTIONS), "--warmup", "0s", "--json",
                          "--timeout", "60s", *options, f"http://127.0.0.1:{self.listen}/compute"])


def faults(mesh):
    """One kill after another, each process back before the next dies."""
    def at(second):
        time.sleep(max(0, START_LOAD + second - time.monotonic()))

    def kill(p, back):
        p.kill()
        say(f"killed {p.name}")
        time.sleep(back)
        p.start()
        say(f"{p.name} is back")

    at(2)
    kill(mesh.providers[0], 2)   # back before its lease has ended
    at(6)
    kill(mesh.replicas[1], 2)
    at(10)
    kill(mesh.etcd, 3)           # with its data
    at(15)
    mesh.etcd.kill()
    shutil.rmtree(mesh.data)     # and without
    say("killed etcd and removed its data")
    time.sleep(LEASE + 2)
    mesh.etcd.start()
    say("etcd is back, empty")
    at(26)
    kill(mesh.providers[1], LEASE + 3)  # away for longer than its lease
    at(36)
    kill(mesh.replicas[2], 0)


class Use(Level):
    """A level, and the memory: 256 connections have come and gone."""

    def __init__(self, p):
        super().__init__(p)
        self.rss = p.rss()

    def above(self, before):
        memory = [f"memory ({before.rss} -> {self.rss} KiB)"] * (self.rss > 1.3 * before.rss + 8 * 1024)
        return super().above(before) + memory


# How long pooled connections may take to be closed once they are idle, and
# memory to go back: the runtime collects garbage every two minutes at least.
REST = 180


def settled(mesh):
    """The levels at which sidecars without traffic stay."""
    def look():
        return [Use(p) for p in mesh.sidecars]

    def counts(levels):
        return [(level.pending, level.fds, level.goroutines) for level in levels]

    end, levels = time.monotonic() + REST, look()
    since = time.monotonic()
    while time.monotonic() < min(end, since + 5):
        time.sleep(0.5)
        now = look()
        if counts(now) != counts(levels):
            since = time.monotonic()
        levels = now
    return levels


def compare(suite, mesh, before, now):
    print(f"\n{'':12}{'RSS MiB':>18}{'descriptors':>16}{'goroutines':>16}{'pending':>10}")
    for p, b, a in zip(mesh.sidecars, before, now):
        print(f"{p.name:12}{b.rss / 1024:8.1f} ->{a.rss / 1024:7.1f}{b.fds:8} ->{a.fds:5}"
              f"{b.goroutines:8} ->{a.goroutines:5}{a.pending:10.0f}{'' if a.pid == b.pid else '  (restarted)'}")
    print()
    for p, b, a in zip(mesh.sidecars, before, now):
        above = a.above(b)
        suite.check(f"{p.name}: nothing is left", not above, "; ".join(above))


def main():
    global START_LOAD  # pylint: disable=global-statement
    suite = Suite(sys.argv[2])
    mesh = Mesh(suite, sys.argv[1])
    mesh.start()
    say("the mesh is up; its consumer may have answered no-endpoint until then")

    warm = mesh.load("--duration", "4s")  # free lists and pools grow to their size
    warm.communicate(timeout=PATIENCE)
    before = settled(mesh)
    say("levels taken")

    START_LOAD = time.monotonic()
    load = mesh.load("--duration", f"{SECONDS}s", "--requests", str(REQUESTS))
    faults(mesh)
    out, _ = load.communicate(timeout=LOAD_PATIENCE)
    report = json.loads(out)
    say(f"{report['requests']} requests at {report['achieved_rate']:.0f}/s, p50 {report['p50_ms']:.2f} ms, "
        f"p99 {report['p99_ms']:.2f} ms, max {report['max_ms']:.2f} ms; errors {report['error_kinds']}, "
        f"statuses {report['statuses']}")
    now = [at_rest(p, b, REST, Use) for p, b in zip(mesh.sidecars, before)]

    if report["errors"]:
        print("what the sidecars answered themselves:")
        for p in mesh.sidecars:
            print(" ", p.name, re.findall(r'^remora_errors_total\{code="(.*)"\} (\S+)$', get(p, "/metrics"), re.MULTILINE))
    suite.check(f"at least {REQUESTS} requests", report["requests"] >= REQUESTS, str(report["requests"]))
    suite.check("no errors", report["errors"] == 0, f"{report['error_kinds']} {report['statuses']}")
    suite.check("no answer is another request's", not report["error_kinds"].get("nonce"))
    suite.check("every answer is a 200", report["statuses"] == {"200": report["requests"]}, str(report["statuses"]))
    suite.attempt("all replicas are in use again", lambda: [
        wait_for(r.name, PATIENCE, lambda: mesh.reaches(r.name)) for r in mesh.replicas])
    compare(suite, mesh, before, now)
    return suite.finish()


START = START_LOAD = time.monotonic()

if __name__ == "__main__":
    sys.exit(main())
