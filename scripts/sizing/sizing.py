"""What connections, requests and links cost a sidecar in memory; see ../sizing.sh.

    sizing.py BIN DIR    BIN holds remora, DIR takes configurations and logs

No figure is judged: they stand in docs/operations.md.
"""

import asyncio
import os
import resource
import sys

from harness import PATIENCE, Suite, free_ports, wait_for
from sidecar import get, ready

COUNT = 2000  # connections and requests
LINKS = 200  # endpoints that are called over links
BODY = b"x" * 300

CONSUMER = """
admin: {{address: "127.0.0.1:{admin}"}}
log: {{level: error, format: text}}
listeners: [{{name: egress, address: "127.0.0.1:{port}", protocol: http, service: app}}]
timeouts: {{drain: 0s}}
services:
  app:
    discover: static
    protocol: {protocol}
    endpoints: [{endpoints}]
    lb: {{policy: weighted_round_robin}}
    timeout: 10m
    connect_timeout: 15s
    max_pending: 100000
"""
PROVIDER = """
admin: {{address: "127.0.0.1:{admin}"}}
log: {{level: error, format: text}}
listeners: [{{name: ingress, address: "0.0.0.0:{port}", protocol: link, service: app, insecure: true}}]
timeouts: {{drain: 0s}}
services: {{app: {{discover: static, protocol: {protocol}, endpoints: [{endpoints}], connect_timeout: 15s}}}}
"""


class Sidecar:
    """A sidecar that runs until stop."""

    def __init__(self, suite, name, config, protocol, *endpoints):
        self.port, admin = free_ports(2)
        text = config.format(admin=admin, port=self.port, protocol=protocol, endpoints=", ".join(f'"{e}"' for e in endpoints))
        self.process = suite.sidecar(name, os.path.join(sys.argv[1], "remora"), text, admin, admin).start()
        wait_for(f"{name} to be ready", PATIENCE, lambda: ready(self.process))

    def sum(self, metric):
        """The sum of the series of a metric."""
        lines = get(self.process, "/metrics").splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(metric))

    def resident(self):
        """Resident KiB, after a collection."""
        get(self.process, "/debug/pprof/heap?gc=1&debug=1")
        return self.process.rss()

    def report(self, what, before, count):
        now = self.resident()
        print(f"{what:<46} {(now - before) / count:5.1f} KiB each, of {count}; the process: {now / 1024:.0f} MiB, "
              f"{self.process.fds()} descriptors", flush=True)

    def stop(self):
        self.process.kill()


class Application:
    """HTTP that answers at once, or never."""

    def __init__(self):
        self.holds, self.held = False, 0

    async def serve(self):
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0, backlog=4096)
        return "127.0.0.1:%d" % server.sockets[0].getsockname()[1]

    async def handle(self, reader, writer):
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(len(BODY))
                if self.holds:
                    self.held += 1
                else:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + BODY[:200])
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()


def send(connections):
    for _, writer in connections:
        writer.write(b"POST / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)


async def call(connections):
    send(connections)
    for reader, _ in connections:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(200)


async def connections_and_requests(suite, app, address):
    sidecar = Sidecar(suite, "sidecar", CONSUMER, "http", address)
    try:
        empty = sidecar.resident()
        print(f"with nothing to do: {empty / 1024:.0f} MiB")
        connections = [await asyncio.open_connection("127.0.0.1", sidecar.port) for _ in range(COUNT)]
        wait_for("the connections", PATIENCE, lambda: sidecar.sum("remora_downstream_connections") >= COUNT)
        sidecar.report("a connection that was never used", empty, COUNT)
        for start in range(0, COUNT, 100):
            await call(connections[start:start + 100])
        sidecar.report("a connection between requests", empty, COUNT)
        before, app.holds = sidecar.resident(), True
        send(connections)
        while app.held < COUNT:
            await asyncio.sleep(0.05)
        sidecar.report("a request in flight, and its connection on", before, COUNT)
    finally:
        sidecar.stop()
        app.holds = False


async def links(suite, address):
    provider = Sidecar(suite, "provider", PROVIDER, "http", address)
    consumer = Sidecar(suite, "consumer", CONSUMER, "link", *(f"127.0.1.{i + 1}:{provider.port}" for i in range(LINKS)))
    try:
        before = consumer.resident(), provider.resident()
        connections = [await asyncio.open_connection("127.0.0.1", consumer.port) for _ in range(16)]
        for _ in range(LINKS):
            await call(connections)
        count = int(consumer.sum("remora_endpoint_connections"))
        consumer.report("a link, at the consumer", before[0], count)
        provider.report("a link, at the provider", before[1], count)
    finally:
        consumer.stop()
        provider.stop()


async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    suite = Suite(sys.argv[2])
    app = Application()
    address = await app.serve()
    await connections_and_requests(suite, app, address)
    await links(suite, address)


asyncio.run(main())
