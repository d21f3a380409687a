"""The processes that suffer the faults: consumers' sidecars, three providers with their
applications, an etcd of three, each on a host of its own; and the load."""

import errno
import json
import os
import resource
import shutil
import signal
import urllib.request

from clock import Clock
from layers import Layers, together
from network import Network

from harness.process import PATIENCE, Failed, Process, Timeout, run, tool, wait_for
from harness.sidecar import configuration, written

CONSUMERS = ("consumer", "consumer-2")
PROVIDERS = ("provider-1", "provider-2", "provider-3")
APPS = ("app-1", "app-2", "app-3")
ETCDS = ("etcd-1", "etcd-2", "etcd-3")
ADDRESSES = {**{name: f"10.78.0.{i}" for i, name in enumerate(CONSUMERS, 1)},
             **{name: f"10.78.0.1{i}" for i, name in enumerate(PROVIDERS, 1)},
             **{name: f"10.78.0.2{i}" for i, name in enumerate(ETCDS, 1)}}

LEASE = 2  # seconds; the shortest that etcd grants
DEADLINE = 5  # seconds that a request has in the sidecars; its client waits longer, also for a free connection
CONNECT = 2  # seconds for a connection: the default is too short for a machine that stands still

# Seconds that a replaced process has to end. Then it ends connections of clients that had no last response, also with a
# request: no client of a consumer waits so long with its next one.
CONSUMER_DRAIN, PROVIDER_DRAIN = 15, 5

# Hedges and paid retries for each request. Each request at a lost provider takes one,
# and where the machine itself stalls those are many.
BUDGET = 0.5

# The services, each with what the sidecars speak, and with the ports of its listeners at consumers and providers. The
# last one is not in etcd: there the protocol would be that of the listener.
SERVICES = {"compute": ("link", 15001, 15006), "plain": ("http", 15002, 15007), "multiplexed": ("http2", 15003, 15007)}
ADMIN = "http://127.0.0.1:9901"

SLOW_DISK = 300_000  # microseconds that a write to a slow disk takes

# What reloads change, from one value to the other and back. Each makes its service a new one.
CHANGES = {"static": ("max_concurrency", (64, 0)), "etcd": ("lb", ({"subset": 0}, {"subset": 8}))}

LARGEST_DISK = 1 << 30  # bytes of a file system that is filled
PAGE = 4096  # bytes, the unit in which a disk is allocated


def consumer(config, disk, settings):
    config["timeouts"] = {"drain": f"{CONSUMER_DRAIN}s"}
    config["registry"]["cache_dir"] = f"{disk}/cache"
    config["access_log"] = {"path": f"{disk}/access.log", "sample": 0.1}
    for service, (protocol, port, to) in SERVICES.items():
        config["listeners"].append({"name": service, "address": f"127.0.0.1:{port}", "protocol": "http", "service": service})
        found = {"discover": "etcd"}
        if protocol == "http2":
            found = {"discover": "static", "endpoints": [f"{ADDRESSES[name]}:{to}" for name in PROVIDERS]}
        config["services"][service] = {
            **found, "protocol": protocol, "timeout": f"{DEADLINE}s", "connect_timeout": f"{CONNECT}s",
            "retry": {"attempts": 2, "on": ["connect", "refused", "reset"]}, "hedge": {"mode": "on", "budget": BUDGET}, **settings}


def provider(config, address):
    config["timeouts"] = {"drain": f"{PROVIDER_DRAIN}s"}
    config["services"]["local"] = {"discover": "static", "endpoints": ["127.0.0.1:8080"], "protocol": "http",
                                   "max_concurrency": 64, "connect_timeout": f"{CONNECT}s"}
    config["register"] = []
    for service, (protocol, _, port) in SERVICES.items():
        if protocol == "http2":
            continue
        config["listeners"].append({"name": service, "address": f"{address}:{port}", "protocol": protocol, "service": "local",
                                    **({"insecure": True} if protocol == "link" else {})})
        config["register"].append({"service": service, "listener": service, "advertise": f"{address}:{port}",
                                   "check": {"http": "/healthz"}})


class Member(Process):
    """A process of the mesh. What faults do to it may overlap."""

    def __init__(self, *args):
        super().__init__(*args)
        self.former = []  # processes whose place another one has taken, and that may still drain
        self.logged = 0  # the size of the log at the last start
        self.clocks = {}  # by process id
        self.tracer = None
        self.down = Layers(lambda holders: self.kill() if holders else self.start())
        self.paused = Layers(lambda holders: self.signal(signal.SIGSTOP if holders else signal.SIGCONT))
        self.clock = Layers(self._set_clock)
        self.without_descriptors = Layers(self._limit_descriptors)
        self.slow_disk = Layers(self._trace)

    def alive(self):
        """The processes: none, one, or, while one takes the place of another, two; the latest last."""
        return [c for c in (*self.former, self.child) if c and c.poll() is None]

    def start(self):
        if os.path.exists(self.log):
            self.logged = os.path.getsize(self.log)
        return super().start()

    def serves(self):
        """Reports whether a sidecar's latest process says that it has started. Before, it may still be another program."""
        with open(self.log, "rb") as f:
            f.seek(self.logged)
            return b'"msg":"serving"' in f.read()

    def reload(self):
        """Not of a process that starts: the signal would end it."""
        if self.serves():
            self.signal(signal.SIGHUP)

    def replace(self):
        """Starts a process that takes the place of the one that runs, if one does (a hot restart)."""
        if alive := self.alive():
            self.former = alive
            self.start()

    def signal(self, number):
        for c in self.alive():
            c.send_signal(number)

    def ended(self):
        return not self.alive()

    def kill(self):
        self.life = None
        for c in self.alive():
            c.kill()
            c.wait()

    def stop(self):
        if self.tracer:
            self.tracer.stop()
        for c in self.former:
            c.kill()
            c.wait()
        super().stop()

    def _set_clock(self, steps):
        """Of processes that have started."""
        for c in self.alive():
            if c.pid not in self.clocks and self.serves():
                self.clocks[c.pid] = Clock(c.pid, self.paused)
            if c.pid in self.clocks:
                self.clocks[c.pid].step(sum(steps))

    def _limit_descriptors(self, holders):
        """Not of a process that starts: it would end."""
        for c in self.alive() if not holders or self.serves() else ():
            _, hard = resource.prlimit(c.pid, resource.RLIMIT_NOFILE)
            used = {int(fd) for fd in os.listdir(f"/proc/{c.pid}/fd")}
            free = next(n for n in range(len(used) + 1) if n not in used)
            resource.prlimit(c.pid, resource.RLIMIT_NOFILE, (free if holders else hard, hard))

    def _trace(self, holders):
        """Has the kernel hold each write to the disk; not of a process that starts meanwhile."""
        if self.tracer and not self.tracer.ended():
            if not holders:
                self.tracer.stop()
        elif holders and self.alive():
            self.tracer = Process(self.name + "-disk", [
                "strace", "-f", "-qq", "-o", "/dev/null", "-p", str(self.child.pid), "-e", "trace=fsync,fdatasync",
                "-e", f"inject=fsync,fdatasync:delay_enter={SLOW_DISK}"], self.log).start()


class Mesh:
    """All of it. A process is named after its host, an application "app" and its provider's number. settings are
    of the consumers' services."""

    def __init__(self, suite, consumers=CONSUMERS[:1], bad_cables=PROVIDERS, median="1ms", **settings):
        self.suite, self.consumers = suite, consumers
        self.network = Network(suite, {name: ADDRESSES[name] for name in (*consumers, *PROVIDERS, *ETCDS)}, bad_cables)
        self.hosts = self.network.hosts
        self.disk = suite.path("disk")  # a small file system of its own, of all consumers
        self.disk_full = Layers(self._fill)
        self.processes = {}
        self.configs = {}  # of sidecars
        for name in ETCDS:
            self.etcd(name)
        for app, name in zip(APPS, PROVIDERS):
            self.process(name, app, tool("remora-lab"), "replica", "--mode", "stall", "--stall-mean", "0",
                         "--median", median, "--name", app, "--log", self.executions(app))
            self.sidecar(name, provider, ADDRESSES[name])
        for name in consumers:
            os.makedirs(self.disk_of(name), exist_ok=True)
            self.sidecar(name, consumer, self.disk_of(name), settings)
        self.sidecars = [self.processes[name] for name in (*consumers, *PROVIDERS)]

    def process(self, host, name, *argv):
        self.processes[name] = self.suite.add(Member(name, self.hosts[host].argv(*argv), self.suite.path(name + ".log")))

    def executions(self, app):
        """The file with the requests that an application has begun to carry out."""
        return self.suite.path(app + ".executions")

    def etcd(self, name):
        client, peer = (f"http://{ADDRESSES[name]}:{port}" for port in (2379, 2380))
        cluster = ",".join(f"{other}=http://{ADDRESSES[other]}:2380" for other in ETCDS)
        self.process(name, name, "etcd", "--name", name, "--data-dir", self.data(name),
                     "--listen-client-urls", client, "--advertise-client-urls", client,
                     "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster)

    def data(self, etcd):
        return self.suite.path(etcd)

    def disk_of(self, name):
        return os.path.join(self.disk, name)

    def sidecar(self, name, complete, *args):
        """A sidecar with the configuration that complete makes of the common parts."""
        config = configuration(name, "127.0.0.1:9901", log={"level": "info"}, registry={
            "etcd": {"endpoints": [f"{ADDRESSES[etcd]}:2379" for etcd in ETCDS], "lease_ttl": f"{LEASE}s"}})
        complete(config, *args)
        self.configs[name] = config
        self.process(name, name, tool("remora"), "run", "-c", self.write(name))

    def change(self, name):
        """Changes what a sidecar's next reload finds, and what its next process starts with."""
        for service in self.configs[name]["services"].values():
            key, (one, other) = CHANGES[service["discover"]]
            service[key] = one if service.get(key) == other else other
        self.write(name)

    def check_changes(self):
        """Fails if a changed configuration is not valid. All are as before then."""
        for name in self.configs:
            for _ in range(2):
                self.change(name)
                run([tool("remora"), "check", self.suite.path(name + ".yaml")])

    def write(self, name):
        """Writes the configuration of a sidecar, and returns its path."""
        return self.suite.file(name + ".yaml", written(self.configs[name]))

    def start(self):
        self.network.build()
        for p in self.processes.values():
            p.start()
        self.wait_normal()

    def remove(self):
        """Removes everything that start has made, all or part."""
        self.suite.stop()
        self.network.remove()

    def down(self, *names):
        """A context in which these processes are killed. It ends with their start."""
        return together(*(self.processes[name].down() for name in names))

    def _fill(self, holders):
        filler = os.path.join(self.disk, "filler")
        if not holders:
            os.remove(filler)
            return
        system = os.statvfs(self.disk)
        if system.f_blocks * system.f_frsize > LARGEST_DISK:
            raise Failed(f"{self.disk} is not the small file system that may be full")
        with open(filler, "ab", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(PAGE))
            except OSError as e:
                if e.errno != errno.ENOSPC:
                    raise

    def call(self, host, url, body=None, **headers):
        """The body and the headers of the response to a host's HTTP request."""
        request = urllib.request.Request(url, data=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        with self.hosts[host].inside(), urllib.request.urlopen(request, timeout=PATIENCE) as r:
            return r.read(), r.headers

    def admin(self, name, path):
        body, _ = self.call(name, ADMIN + path)
        return body.decode()

    def endpoints(self, name, service):
        """The endpoints of a service that a consumer's sidecar knows."""
        return json.loads(self.admin(name, "/endpoints"))["services"][service]["endpoints"]

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
            for p in self.processes.values():
                if len(p.alive()) != 1:
                    return f"{p.name} is {len(p.alive())} processes"
            for name in self.consumers:
                for _, port, _ in SERVICES.values():
                    for _ in range(8):  # an ejected endpoint is back once it has served
                        self.call(name, f"http://127.0.0.1:{port}/compute", b"{}", x_remora_idempotent="1")
            for name in (*self.consumers, *PROVIDERS):
                state = json.loads(self.admin(name, "/endpoints"))
                if not state["registry"]["connected"]:
                    return f"{name} has lost etcd"
                if any(r["state"] != "registered" for r in state["registrations"]):
                    return f"{name} is not registered"
            for name in self.consumers:
                for service, (protocol, _, _) in SERVICES.items():
                    known = self.endpoints(name, service)
                    if len(known) < len(PROVIDERS):
                        return f"{name} knows {', '.join(e['address'] for e in known) or 'no provider'} of {service}"
                    for e in known:
                        if e.get("ejected") or e["stalled"] or protocol == "link" and not e["connections"]:
                            return f"{name} does not use {e['address']}"
        except (OSError, ValueError) as e:
            return f"{type(e).__name__}: {e}"
        return "" if self.leader() else "etcd has no leader"

    def wait_normal(self):
        """Waits for the state before all faults. Timeout names the difference."""
        try:
            wait_for("all to be as before", lambda: not self.abnormal())
        except Timeout as e:
            raise Timeout(f"{e}: {self.abnormal()}") from None

    def load(self, name, rate, seconds, *options, host="consumer", service="compute"):
        """Starts an open loop on a consumer's host, which writes a log of that name."""
        log = self.suite.path(name + ".requests")
        return log, self.suite.process(name, self.hosts[host].argv(
            tool("remora-lab"), "load", "--rate", str(rate), "--duration", f"{seconds}s", "--warmup", "0s",
            "--connections", "128", "--max-connections", "128", "--timeout", f"{PATIENCE}s", "--log", log, *options,
            f"http://127.0.0.1:{SERVICES[service][1]}/compute")).start()

    def connections(self, host, address):
        """How many open TCP connections a host has with an address."""
        return len(self.hosts[host].execute("ss", "-Htn", "state", "established", "dst", address).stdout.splitlines())

    def erase(self, *etcds):
        """Removes the data of etcds that are down."""
        for name in etcds:
            shutil.rmtree(self.data(name))
