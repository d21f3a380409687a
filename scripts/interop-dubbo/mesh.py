"""The processes of the suite: Java providers, and the sidecars around them.

There is a provider of Dubbo 2.7 and one of 3.3, each with a sidecar. Beside the
consumers there is one sidecar with a listener for each way to the providers.
"""

import json
import os
import re
import subprocess

from harness import PATIENCE, free_ports, wait_for
from sidecar import pending, ready

HERE = os.path.dirname(os.path.abspath(__file__))
JAVA = os.path.join(os.path.dirname(os.path.dirname(HERE)), "lab", "java", "target")

# Milliseconds. A provider closes a connection that was silent for three of them;
# a sidecar asks after 15 to 30 seconds whether anybody is there.
HEARTBEAT = 12_000

# Seconds that a call may take.
TIMEOUT = 60

# Each way of a call, as a service of the consumers' sidecar: the line of Dubbo
# that answers, and how it is reached.
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


def provider(suite, name, line, port, threads=200):
    """A provider that was started; up() waits until it offers its services."""
    return suite.process(name, java(line, "Provider", port, threads, HEARTBEAT), port).start()


def up(p):
    with open(p.log, encoding="utf-8", errors="replace") as f:
        return re.search("^ready$", f.read(), re.MULTILINE) is not None


def consume(line, port, *args, properties=(), **more):
    """Runs a consumer to its end."""
    return subprocess.run(java(line, "Consumer", port, *args, properties=properties), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=5 * PATIENCE, check=False, **more)


class Sidecar:
    """A configuration that grows, and the process that runs it."""

    def __init__(self, suite, binaries, name):
        self.suite, self.binaries, self.name = suite, binaries, name
        self.admin = free_port()
        self.config = {"loops": 1, "node": {"id": name}, "log": {"format": "text"},
                       "admin": {"address": at(self.admin)}, "listeners": [], "services": {}}

    def service(self, name, ports, protocol, **more):
        self.config["services"][name] = {"discover": "static", "endpoints": [at(p) for p in ports],
                                         "protocol": protocol, "connect_timeout": "10s", "timeout": f"{TIMEOUT}s", **more}

    def listener(self, protocol, service):
        port = free_port()
        self.config["listeners"].append(
            {"name": f"{protocol}-{service}", "address": at(port), "protocol": protocol, "service": service})
        return port

    def start(self):
        text = json.dumps(self.config, indent=1)  # which is YAML
        p = self.suite.sidecar(self.name, os.path.join(self.binaries, "remora"), text, self.admin, self.admin).start()
        wait_for(f"{self.name} to be ready", PATIENCE, lambda: ready(p))
        return p


_ports = []


def free_port():
    """One of those that were free when the suite began."""
    if not _ports:
        _ports.extend(free_ports(60))
    return _ports.pop()


def at(port):
    return f"127.0.0.1:{port}"


class Mesh:
    """All of the processes: http and dubbo hold the listener's port of each way."""

    def __init__(self, suite, binaries):
        self.ports = {line: free_port() for line in ("2.7", "3.3")}
        self.providers = {line: provider(suite, "provider-" + line, line, port) for line, port in self.ports.items()}
        for p in self.providers.values():
            wait_for(p.name, PATIENCE, lambda p=p: up(p))
        links, self.sidecars = {}, {}
        for line, port in self.ports.items():
            beside = Sidecar(suite, binaries, "sidecar-" + line)
            beside.service("local", [port], "dubbo", serialization="fastjson" if line == "2.7" else "hessian2")
            links[line] = beside.listener("link", "local")
            self.sidecars[line] = beside.start()
        consumers = Sidecar(suite, binaries, "sidecar-consumers")
        self.http, self.dubbo = {}, {}
        for way, (line, protocol, serialization) in WAYS.items():
            more = {"serialization": serialization} if protocol == "dubbo" else {}
            if way == "direct-3.3-fastjson":
                more["timeout"] = "2s"
            consumers.service(way, [links[line] if protocol == "link" else self.ports[line]], protocol, **more)
            self.http[way] = consumers.listener("http", way)
            self.dubbo[way] = consumers.listener("dubbo", way)
        self.sidecars["consumers"] = consumers.start()

    def settle(self):
        """Waits until no sidecar counts anything as unfinished, for half of what its services' timeouts are."""
        for p in self.sidecars.values():
            wait_for(f"{p.name} to be done", TIMEOUT / 2, lambda p=p: pending(p) == 0)
