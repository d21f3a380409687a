"""The processes that faults are done to: a consumer's sidecar, three providers with
their applications, an etcd of three, each on a host of its own; and the load."""

import json
import os
import shutil
import urllib.request

from harness import PATIENCE, Timeout, wait_for
from network import Network

PROVIDERS = ("provider-1", "provider-2", "provider-3")
ETCDS = ("etcd-1", "etcd-2", "etcd-3")
ADDRESSES = {"consumer": "10.78.0.1",
             **{name: f"10.78.0.1{i}" for i, name in enumerate(PROVIDERS, 1)},
             **{name: f"10.78.0.2{i}" for i, name in enumerate(ETCDS, 1)}}

LEASE = 2  # seconds; the shortest that etcd grants
DEADLINE = 5  # seconds that a request has in the sidecars; its client waits longer

# Hedges and paid retries for each request: what is at a provider that is lost takes one
# each, and where the machine itself stalls that is many.
BUDGET = 0.5

COMMON = """
node: {{id: {name}}}
loops: 2
admin: {{address: "127.0.0.1:9901"}}
registry:
  etcd: {{endpoints: [{etcds}], lease_ttl: {lease}s}}
"""

CONSUMER = COMMON + """
  cache_dir: {disk}/cache
access_log: {{path: {disk}/access.log, sample: 0.1}}
listeners: [{{name: egress, address: "127.0.0.1:15001", protocol: http}}]
routes: [{{service: compute}}]
services:
  compute:
    discover: etcd
    protocol: link
    timeout: {deadline}s
    retry: {{attempts: 2, on: [connect, refused, reset]}}
    hedge: {{mode: on, budget: {budget}}}
"""

PROVIDER = COMMON + """
listeners: [{{name: ingress, address: "{address}:15006", protocol: link, service: local, insecure: true}}]
services: {{local: {{discover: static, endpoints: ["127.0.0.1:8080"], protocol: http, max_concurrency: 64}}}}
register: [{{service: compute, listener: ingress, advertise: "{address}:15006", check: {{http: /healthz}}}}]
"""


class Mesh:
    """All of it. A process is named after its host, an application "app" and its provider's number."""

    def __init__(self, suite, binaries):
        self.suite = suite
        self.remora, self.lab = (os.path.join(binaries, name) for name in ("remora", "remora-lab"))
        self.network = Network(suite, ADDRESSES, bad_cables=PROVIDERS)
        self.hosts = self.network.hosts
        self.disk = os.path.join(suite.dir, "disk")  # small, a file system of its own
        self.processes = {}
        for name in ETCDS:
            self.etcd(name)
        for i, name in enumerate(PROVIDERS, 1):
            self.process(name, f"app-{i}", self.lab, "replica", "--mode", "stall", "--stall-mean", "0",
                         "--median", "1ms", "--name", f"app-{i}")
            self.sidecar(name, PROVIDER)
        self.sidecar("consumer", CONSUMER)
        self.sidecars = [self.processes[name] for name in ("consumer", *PROVIDERS)]

    def process(self, host, name, *argv):
        self.processes[name] = self.suite.process(name, self.hosts[host].argv(*argv))

    def etcd(self, name):
        client, peer = (f"http://{ADDRESSES[name]}:{port}" for port in (2379, 2380))
        cluster = ",".join(f"{other}=http://{ADDRESSES[other]}:2380" for other in ETCDS)
        self.process(name, name, "etcd", "--name", name, "--data-dir", self.data(name),
                     "--listen-client-urls", client, "--advertise-client-urls", client,
                     "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster)

    def data(self, etcd):
        return os.path.join(self.suite.dir, etcd)

    def sidecar(self, name, config):
        file = self.suite.file(name + ".yaml", config.format(
            name=name, address=ADDRESSES[name], lease=LEASE, deadline=DEADLINE, budget=BUDGET, disk=self.disk,
            etcds=", ".join(f'"{ADDRESSES[etcd]}:2379"' for etcd in ETCDS)))
        self.process(name, name, self.remora, "run", "-c", file)

    def start(self):
        self.network.build()
        for p in self.processes.values():
            p.start()
        self.wait_normal()

    def remove(self):
        """Takes away what start has made, all or part."""
        self.suite.stop()
        self.network.remove()

    def call(self, host, url, body=None, **headers):
        """The answer to an HTTP request from one of the hosts, and its headers."""
        request = urllib.request.Request(url, data=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        with self.hosts[host].inside(), urllib.request.urlopen(request, timeout=PATIENCE) as r:
            return r.read(), r.headers

    def admin(self, name, path):
        body, _ = self.call(name, "http://127.0.0.1:9901" + path)
        return body.decode()

    def endpoints(self):
        """What the consumer's sidecar knows of the providers, by address."""
        service = json.loads(self.admin("consumer", "/endpoints"))["services"]["compute"]
        return {e["address"]: e for e in service["endpoints"]}

    def ask_etcd(self, name, path, **body):
        answer, _ = self.call("consumer", f"http://{ADDRESSES[name]}:2379/v3/{path}", json.dumps(body).encode())
        return json.loads(answer)

    def leader(self):
        """The name of the etcd that leads; "": none answers that there is one."""
        for name in ETCDS:
            try:
                status = self.ask_etcd(name, "maintenance/status")
            except OSError:
                continue
            if status.get("leader", "0") == status["header"]["member_id"]:
                return name
        return ""

    def abnormal(self):
        """What is not as it was before all faults; "": nothing."""
        try:
            for _ in range(8):  # an endpoint that was ejected is back when it has served
                self.call("consumer", "http://127.0.0.1:15001/compute", b"{}", x_remora_idempotent="1")
            for name in ("consumer", *PROVIDERS):
                state = json.loads(self.admin(name, "/endpoints"))
                if not state["registry"]["connected"]:
                    return f"{name} has lost etcd"
                if any(r["state"] != "registered" for r in state["registrations"]):
                    return f"{name} is not registered"
            known = self.endpoints()
        except (OSError, ValueError) as e:
            return f"{type(e).__name__}: {e}"
        if len(known) < len(PROVIDERS):
            return f"the consumer knows {', '.join(known) or 'nobody'}"
        for address, e in known.items():
            if e.get("ejected") or e["stalled"] or not e["connections"]:
                return f"{address} is not in use"
        return "" if self.leader() else "etcd has no leader"

    def wait_normal(self):
        """Waits until all is as it was; raises Timeout with what is not."""
        found = ""

        def normal():
            nonlocal found
            found = self.abnormal()
            return not found

        try:
            wait_for("all to be as before", PATIENCE, normal)
        except Timeout as e:
            raise Timeout(f"{e}: {found}") from None

    def load(self, name, rate, seconds, *options):
        """Starts an open loop on the consumer's host, which writes a log of that name."""
        log = os.path.join(self.suite.dir, name + ".requests")
        return log, self.suite.process(name, self.hosts["consumer"].argv(
            self.lab, "load", "--rate", str(rate), "--duration", f"{seconds}s", "--warmup", "0s",
            "--connections", "128", "--max-connections", "128", "--timeout", f"{DEADLINE + 3}s", "--log", log, *options,
            "http://127.0.0.1:15001/compute")).start()

    def connections(self, host, address):
        """How many open TCP connections a host has with an address."""
        return len(self.hosts[host].execute("ss", "-Htn", "state", "established", "dst", address).stdout.splitlines())

    def stop_etcd(self, erase=False):
        for name in ETCDS:
            self.processes[name].kill()
        for name in ETCDS if erase else ():
            shutil.rmtree(self.data(name))

    def start_etcd(self):
        for name in ETCDS:
            self.processes[name].start()
