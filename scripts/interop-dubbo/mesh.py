"""The processes of the suite: Java providers, and the sidecars around them.

There is a provider of Dubbo 2.7 and one of 3.3, each with a sidecar. Beside the
consumers there is one sidecar with a listener for each way to the providers.
"""

import os
import re
import subprocess

from harness.process import PATIENCE, free_port, wait_for
from harness.sidecar import Sidecar

HERE = os.path.dirname(os.path.abspath(__file__))
JAVA = os.path.join(os.path.dirname(os.path.dirname(HERE)), "lab", "java", "target")

# Milliseconds. A provider closes a connection after a silence of three of them. A
# sidecar sends a heartbeat after 15 to 30 seconds.
HEARTBEAT = 12_000

# Seconds that a call may take.
TIMEOUT = 60

# Each way of a call, as a service of the consumers' sidecar: the line of Dubbo
# that responds, and how it is reached.
WAYS = {
    "link-2.7": ("2.7", "link", "fastjson"),
    "link-3.3": ("3.3", "link", "hessian2"),
    "direct-2.7": ("2.7", "dubbo", "hessian2"),
    "direct-2.7-fastjson": ("2.7", "dubbo", "fastjson"),
    "direct-3.3": ("3.3", "dubbo", "hessian2"),
    "direct-3.3-fastjson": ("3.3", "dubbo", "fastjson"),  # 3.3 does not know it
}


def java(line, main, *args, properties=()):
    """The command line of a main class of lab/java."""
    home = os.path.join(JAVA, line)
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "--add-opens", "java.base/java.lang=ALL-UNNAMED", *(f"-D{p}" for p in properties),
            "-cp", f"{home}/lab.jar:{home}/lib/*", f"dev.remora.lab.{main}", *map(str, args)]


def provider(suite, name, line, threads=200):
    """A provider on port p.port. start waits until it offers its services."""
    port = free_port()
    p = suite.process(name, java(line, "Provider", port, threads, HEARTBEAT), lambda: offers(p))
    p.port = port
    return p


def offers(p):
    with open(p.log, encoding="utf-8", errors="replace") as f:
        return re.search("^ready$", f.read(), re.MULTILINE)


def consume(line, port, *args, properties=(), **more):
    """Runs a consumer to its end."""
    return subprocess.run(java(line, "Consumer", port, *args, properties=properties), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=5 * PATIENCE, check=False, **more)


def sidecar(suite, name):
    return Sidecar(suite, name, loops=1, log={"format": "text"})


def add_service(p, name, ports, protocol, **more):
    p.service(name, protocol, *ports, **{"timeout": f"{TIMEOUT}s", **more})


class Mesh:
    """All of the processes: http and dubbo hold the listener's port of each way."""

    def __init__(self, suite):
        self.providers = {line: provider(suite, "provider-" + line, line).start() for line in ("2.7", "3.3")}
        self.sidecars = {name: sidecar(suite, "sidecar-" + name) for name in (*self.providers, "consumers")}
        links = {}
        for line, p in self.providers.items():
            beside = self.sidecars[line]
            add_service(beside, "local", [p.port], "dubbo", serialization="fastjson" if line == "2.7" else "hessian2")
            links[line] = beside.listener("link", "local")
        consumers = self.sidecars["consumers"]
        self.http, self.dubbo = {}, {}
        for way, (line, protocol, serialization) in WAYS.items():
            more = {"serialization": serialization} if protocol == "dubbo" else {}
            if way == "direct-3.3-fastjson":
                more["timeout"] = "2s"
            add_service(consumers, way, [links[line] if protocol == "link" else self.providers[line].port], protocol, **more)
            self.http[way] = consumers.listener("http", way)
            self.dubbo[way] = consumers.listener("dubbo", way)
        for p in self.sidecars.values():
            p.start()

    def settle(self):
        """Waits until no sidecar has unfinished work, for half the timeout of its services."""
        for p in self.sidecars.values():
            wait_for(f"{p.name} to be done", lambda p=p: p.pending() == 0, TIMEOUT / 2)
