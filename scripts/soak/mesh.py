"""The processes of the soak: one consumer's sidecar, and what it calls over links
with mutual TLS.

    compute   three replicas that freeze, each with a sidecar, found in etcd; hedged
    hello     two Dubbo providers, called by forms; likewise found in etcd
    web       Server-Sent Events and WebSockets
    bulk      bodies of any length
"""

import os
import signal
import sys

from harness import PATIENCE, certificates, free_ports, wait_for
from objects import EVERY_ALLOCATION
from sidecar import get

HERE = os.path.dirname(os.path.abspath(__file__))
APP = os.path.join(os.path.dirname(HERE), "streams", "app.py")

COMPUTE, HELLO = 3, 2
LEASE = 5  # seconds; an endpoint that was killed leaves etcd after these

COMMON = """
node: {{id: {name}}}
loops: 2
log: {{level: error}}
admin: {{address: "127.0.0.1:{admin}"}}
registry: {{etcd: {{endpoints: ["127.0.0.1:{etcd}"], lease_ttl: {lease}s}}}}
limits: {{message: 1MiB}}
timeouts: {{drain: 3s}}
"""

PROVIDER = COMMON + """
listeners: [{{name: ingress, address: "127.0.0.1:{listen}", protocol: link, service: local, tls: {tls}}}]
services:
  local: {{discover: static, endpoints: ["127.0.0.1:{app}"], protocol: {protocol}, connect_timeout: 10s, max_concurrency: 128}}
{register}
"""

REGISTER = 'register: [{{service: {service}, listener: ingress, advertise: "127.0.0.1:{listen}"}}]'

CONSUMER = COMMON + """
listeners:
  - {{name: egress, address: "127.0.0.1:{listen}", protocol: http}}
  - {{name: forms, address: "127.0.0.1:{forms}", protocol: http, service: hello}}
routes:
  - {{match: {{path: /compute}}, service: compute}}
  - {{match: {{path: /echo}}, service: compute}}
  - {{match: {{path: /bytes/}}, service: bulk}}
  - {{match: {{path: /sum}}, service: bulk}}
  - {{service: web}}
services:
  compute: {{discover: etcd, {called}, hedge: {{mode: on, max_delay: {max_delay}}}}}
  hello: {{discover: etcd, {called}}}
  bulk: {{discover: static, endpoints: ["127.0.0.1:{bulk}"], {called}}}
  web: {{discover: static, endpoints: ["127.0.0.1:{web}"], {called}}}
"""

# How the services are called: what is asked for may be asked for twice, so that a
# kill costs no answer.
CALLED = ("protocol: link, tls: {tls}, timeout: 30s, connect_timeout: 10s, idempotent: true, "
          "retry: {{attempts: 2, on: [connect, refused, reset]}}")


class Mesh:
    """All processes, as attributes; those in watched are never restarted."""

    def __init__(self, suite, binaries):
        self.suite, self.bin = suite, binaries
        self.tls = certificates(suite.dir, "soak")
        ports = iter(free_ports(32))
        self.etcd_port, self.egress, self.forms = next(ports), next(ports), next(ports)
        data = os.path.join(suite.dir, "etcd")
        self.etcd = suite.process("etcd", [self.tool("remora-lab"), "etcd", "--listen", f"127.0.0.1:{self.etcd_port}",
                                           "--dir", data], self.etcd_port)
        self.replicas, self.computing = self.registered(ports, "compute", COMPUTE, "http", [
            "--mode", "stall", "--stall-mean", "2s", "--stall-len", "50ms", "--median", "1ms"])
        self.callees, self.calling = self.registered(ports, "hello", HELLO, "dubbo", ["--protocol", "dubbo", "--mode", "fast"])
        self.web, self.beside_web = self.alone(ports, "web", lambda port: [sys.executable, APP, str(port)])
        self.bulk, self.beside_bulk = self.alone(ports, "bulk", lambda port: [self.tool("bulk"), "serve", f"127.0.0.1:{port}"])
        self.max_delay = 50
        self.consumer = self.sidecar("consumer", self.egress, next(ports), self.consumer_config)
        self.watched = [self.consumer, self.computing[0], self.calling[0], self.beside_web, self.beside_bulk]

    def tool(self, name):
        return os.path.join(self.bin, name)

    def sidecar(self, name, listen, admin, config):
        """A sidecar with what config makes of its keys."""
        p = self.suite.process(name, [self.tool("remora"), "run", "-c", os.path.join(self.suite.dir, name + ".yaml")],
                               listen, EVERY_ALLOCATION)
        p.admin, p.config = f"http://127.0.0.1:{admin}", config
        p.keys = {"name": name, "listen": listen, "admin": admin, "etcd": self.etcd_port, "lease": LEASE, "tls": self.tls}
        self.configure(p)
        return p

    def configure(self, p):
        with open(p.argv[-1], "w", encoding="ascii") as f:
            f.write(p.config(p.keys))

    def consumer_config(self, keys):
        return CONSUMER.format(**keys, forms=self.forms, bulk=self.beside_bulk.port, web=self.beside_web.port,
                               called=CALLED.format(tls=self.tls), max_delay=f"{self.max_delay}ms")

    def provider(self, ports, name, app, protocol, service=None):
        def config(keys):
            register = REGISTER.format(service=service, **keys) if service else ""
            return PROVIDER.format(**keys, app=app, protocol=protocol, register=register)
        p = self.sidecar(name, next(ports), next(ports), config)
        p.pools = protocol == "http"  # connections, which close when they are idle
        return p

    def registered(self, ports, service, count, protocol, options):
        """Applications of the lab and their sidecars."""
        apps, sidecars = [], []
        for i in range(1, count + 1):
            port = next(ports)
            argv = [self.tool("remora-lab"), "replica", "--listen", f"127.0.0.1:{port}", "--seed", str(i), *options]
            apps.append(self.suite.process(f"{service}-{i}", argv, port))
            sidecars.append(self.provider(ports, f"beside-{service}-{i}", port, protocol, service))
        return apps, sidecars

    def alone(self, ports, name, argv):
        """One application and its sidecar, which the consumer has in its configuration."""
        port = next(ports)
        return self.suite.process(name, argv(port), port), self.provider(ports, f"beside-{name}", port, "http")

    def start(self):
        for p in [self.etcd, *self.replicas, *self.callees, self.web, self.bulk,
                  *self.computing, *self.calling, self.beside_web, self.beside_bulk, self.consumer]:
            p.start()
        self.whole()

    def whole(self):
        """Waits until the consumer knows all endpoints."""
        def known():
            metrics = get(self.consumer, "/metrics")
            return all(f'remora_endpoints{{service="{s}"}} {n}' in metrics for s, n in (("compute", COMPUTE), ("hello", HELLO)))
        wait_for("all endpoints", PATIENCE, known)

    def reload(self):
        """Gives the consumer another configuration."""
        self.max_delay = 90 - self.max_delay
        self.configure(self.consumer)
        self.consumer.child.send_signal(signal.SIGHUP)
