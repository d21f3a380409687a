"""The processes of the soak: one consumer's sidecar, and the services that it calls over
links with mutual TLS.

    compute   three replicas that freeze, each with a sidecar, found in etcd; hedged
    hello     two Dubbo providers, called by forms; likewise found in etcd
    web       Server-Sent Events and WebSockets
    bulk      bodies of any length
"""

import os
import signal
import sys

from objects import EVERY_ALLOCATION

from harness.process import free_port, tool, wait_for
from harness.sidecar import Sidecar

APP = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "streams", "app.py")

COMPUTE, HELLO = 3, 2
LEASE = 5  # seconds; a killed endpoint leaves etcd after these

# A call may be sent twice, so that a kill costs no response.
CALLED = {"timeout": "30s", "idempotent": True, "retry": {"attempts": 2, "on": ["connect", "refused", "reset"]}}

FREEZES = ["--mode", "stall", "--stall-mean", "2s", "--stall-len", "50ms", "--median", "1ms"]


class Mesh:
    """All processes, as attributes. Those in watched are never restarted."""

    def __init__(self, suite):
        self.suite, self.order = suite, []
        self.tls = suite.certificates("soak")
        etcd = free_port()
        self.etcd = self.add(suite.process("etcd", [tool("remora-lab"), "etcd", "--listen", f"127.0.0.1:{etcd}",
                                                    "--dir", suite.path("etcd")], etcd))
        self.common = {"registry": {"etcd": {"endpoints": [f"127.0.0.1:{etcd}"], "lease_ttl": f"{LEASE}s"}},
                       "limits": {"message": "1MiB"}, "timeouts": {"drain": "3s"}, "log": {"level": "error"}}
        self.replicas, self.computing = self.registered("compute", COMPUTE, "http", FREEZES)
        self.callees, self.calling = self.registered("hello", HELLO, "dubbo", ["--protocol", "dubbo", "--mode", "fast"])
        self.web, self.beside_web, web = self.alone("web", lambda port: [sys.executable, APP, str(port)])
        self.bulk, self.beside_bulk, bulk = self.alone("bulk", lambda port: [tool("bulk"), "serve", f"127.0.0.1:{port}"])

        self.consumer = self.sidecar("consumer", routes=[
            {"match": {"path": "/compute"}, "service": "compute"}, {"match": {"path": "/echo"}, "service": "compute"},
            {"match": {"path": "/bytes/"}, "service": "bulk"}, {"match": {"path": "/sum"}, "service": "bulk"},
            {"service": "web"}])
        self.egress = self.consumer.listener("http")
        self.forms = self.consumer.listener("http", "hello")
        called = CALLED | {"tls": self.tls}
        self.consumer.service("compute", "link", hedge={"mode": "on", "max_delay": "50ms"}, **called)
        self.consumer.service("hello", "link", **called)
        self.consumer.service("bulk", "link", bulk, **called)
        self.consumer.service("web", "link", web, **called)
        self.watched = [self.consumer, self.computing[0], self.calling[0], self.beside_web, self.beside_bulk]

    def add(self, process):
        self.order.append(process)
        return process

    def sidecar(self, name, **more):
        return self.add(Sidecar(self.suite, name, EVERY_ALLOCATION, **self.common, **more))

    def provider(self, name, app, protocol):
        """The sidecar beside an application, and its link's port."""
        p = self.sidecar("beside-" + name)
        p.service("local", protocol, app, max_concurrency=128)
        p.pools = protocol == "http"  # its connections close when they are idle
        return p, p.listener("link", "local", tls=self.tls)

    def registered(self, service, count, protocol, options):
        """Applications of the lab and their sidecars."""
        apps, sidecars = [], []
        for i in range(1, count + 1):
            apps.append(self.add(self.suite.replica(f"{service}-{i}", "--seed", str(i), *options)))
            p, port = self.provider(f"{service}-{i}", apps[-1].port, protocol)
            p.register(service, port)
            sidecars.append(p)
        return apps, sidecars

    def alone(self, name, argv):
        """One application, its sidecar, and the port that stands in the consumer's configuration."""
        port = free_port()
        app = self.add(self.suite.process(name, argv(port), port))
        return app, *self.provider(name, port, "http")

    def start(self):
        for p in self.order:
            p.start()
        self.wait_whole()

    def wait_whole(self):
        """Waits until the consumer knows all endpoints."""
        wait_for("all endpoints", lambda: self.endpoints() == {"compute": COMPUTE, "hello": HELLO})

    def endpoints(self):
        known = self.consumer.metrics("remora_endpoints")
        return {s: known.get(f'{{service="{s}"}}') for s in ("compute", "hello")}

    def reload(self):
        """Gives the consumer another configuration."""
        hedge = self.consumer.config["services"]["compute"]["hedge"]
        hedge["max_delay"] = "40ms" if hedge["max_delay"] == "50ms" else "50ms"
        self.consumer.write()
        self.consumer.child.send_signal(signal.SIGHUP)
