"""The processes that suffer the faults: a consumer's sidecar, three providers with their
applications, an etcd of three, each on a host of its own; and the load."""

import json
import shutil
import urllib.request

from network import Network

from harness.process import PATIENCE, Timeout, tool, wait_for
from harness.sidecar import configuration, written

PROVIDERS = ("provider-1", "provider-2", "provider-3")
ETCDS = ("etcd-1", "etcd-2", "etcd-3")
ADDRESSES = {"consumer": "10.78.0.1",
             **{name: f"10.78.0.1{i}" for i, name in enumerate(PROVIDERS, 1)},
             **{name: f"10.78.0.2{i}" for i, name in enumerate(ETCDS, 1)}}

LEASE = 2  # seconds; the shortest that etcd grants
DEADLINE = 5  # seconds that a request has in the sidecars; its client waits longer, also for a free connection
CONNECT = 2  # seconds for a connection: the default is too short for a machine that stands still

# Hedges and paid retries for each request. Each request at a lost provider takes one,
# and where the machine itself stalls those are many.
BUDGET = 0.5

EGRESS, ADMIN = "http://127.0.0.1:15001", "http://127.0.0.1:9901"


def consumer(config, disk):
    config["registry"]["cache_dir"] = f"{disk}/cache"
    config["access_log"] = {"path": f"{disk}/access.log", "sample": 0.1}
    config["listeners"] = [{"name": "egress", "address": "127.0.0.1:15001", "protocol": "http"}]
    config["routes"] = [{"service": "compute"}]
    config["services"]["compute"] = {
        "discover": "etcd", "protocol": "link", "timeout": f"{DEADLINE}s", "connect_timeout": f"{CONNECT}s",
        "retry": {"attempts": 2, "on": ["connect", "refused", "reset"]}, "hedge": {"mode": "on", "budget": BUDGET}}


def provider(config, address):
    config["listeners"] = [{"name": "ingress", "address": f"{address}:15006", "protocol": "link", "service": "local",
                            "insecure": True}]
    config["services"]["local"] = {"discover": "static", "endpoints": ["127.0.0.1:8080"], "protocol": "http",
                                   "max_concurrency": 64, "connect_timeout": f"{CONNECT}s"}
    config["register"] = [{"service": "compute", "listener": "ingress", "advertise": f"{address}:15006",
                           "check": {"http": "/healthz"}}]


class Mesh:
    """All of it. A process is named after its host, an application "app" and its provider's number."""

    def __init__(self, suite):
        self.suite = suite
        self.network = Network(suite, ADDRESSES, bad_cables=PROVIDERS)
        self.hosts = self.network.hosts
        self.disk = suite.path("disk")  # a small file system of its own
        self.processes = {}
        for name in ETCDS:
            self.etcd(name)
        for i, name in enumerate(PROVIDERS, 1):
            self.process(name, f"app-{i}", tool("remora-lab"), "replica", "--mode", "stall", "--stall-mean", "0",
                         "--median", "1ms", "--name", f"app-{i}")
            self.sidecar(name, provider, ADDRESSES[name])
        self.sidecar("consumer", consumer, self.disk)
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
        return self.suite.path(etcd)

    def sidecar(self, name, complete, *args):
        """A sidecar with the configuration that complete makes of the common parts."""
        config = configuration(name, "127.0.0.1:9901", log={"level": "info"}, registry={"etcd": {
            "endpoints": [f"{ADDRESSES[etcd]}:2379" for etcd in ETCDS], "lease_ttl": f"{LEASE}s"}})
        complete(config, *args)
        self.process(name, name, tool("remora"), "run", "-c", self.suite.file(name + ".yaml", written(config)))

    def start(self):
        self.network.build()
        for p in self.processes.values():
            p.start()
        self.wait_normal()

    def remove(self):
        """Removes everything that start has made, all or part."""
        self.suite.stop()
        self.network.remove()

    def call(self, host, url, body=None, **headers):
        """The body and the headers of the response to a host's HTTP request."""
        request = urllib.request.Request(url, data=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        with self.hosts[host].inside(), urllib.request.urlopen(request, timeout=PATIENCE) as r:
            return r.read(), r.headers

    def admin(self, name, path):
        body, _ = self.call(name, ADMIN + path)
        return body.decode()

    def endpoints(self):
        """The providers that the consumer's sidecar knows, by address."""
        service = json.loads(self.admin("consumer", "/endpoints"))["services"]["compute"]
        return {e["address"]: e for e in service["endpoints"]}

    def ask_etcd(self, name, path, **body):
        response, _ = self.call("consumer", f"http://{ADDRESSES[name]}:2379/v3/{path}", json.dumps(body).encode())
        return json.loads(response)

    def leader(self):
        """The name of the etcd that leads, "" if none reports that there is one."""
        for name in ETCDS:
            try:
                status = self.ask_etcd(name, "maintenance/status")
            except OSError:
                continue
            if status.get("leader", "0") == status["header"]["member_id"]:
                return name
        return ""

    def abnormal(self):
        """A difference from the state before all faults, "" if there is none."""
        try:
            for _ in range(8):  # an ejected endpoint is back once it has served
                self.call("consumer", EGRESS + "/compute", b"{}", x_remora_idempotent="1")
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
            return f"the consumer knows {', '.join(known) or 'no provider'}"
        for address, e in known.items():
            if e.get("ejected") or e["stalled"] or not e["connections"]:
                return f"{address} is not in use"
        return "" if self.leader() else "etcd has no leader"

    def wait_normal(self):
        """Waits for the state before all faults. Timeout names the difference."""
        try:
            wait_for("all to be as before", lambda: not self.abnormal())
        except Timeout as e:
            raise Timeout(f"{e}: {self.abnormal()}") from None

    def load(self, name, rate, seconds, *options):
        """Starts an open loop on the consumer's host, which writes a log of that name."""
        log = self.suite.path(name + ".requests")
        return log, self.suite.process(name, self.hosts["consumer"].argv(
            tool("remora-lab"), "load", "--rate", str(rate), "--duration", f"{seconds}s", "--warmup", "0s",
            "--connections", "128", "--max-connections", "128", "--timeout", f"{PATIENCE}s", "--log", log, *options,
            EGRESS + "/compute")).start()

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
