"""A sidecar: its configuration, its process and its admin API."""

import http.client
import json
import re
import time
import urllib.error
import urllib.request

from harness.process import PATIENCE, Process, at, free_port, tool


def configuration(name, admin, **more):
    """The parts that every sidecar of a suite has. Values of more replace them."""
    return {"node": {"id": name}, "loops": 2, "log": {"level": "warn", "format": "text"}, "listeners": [],
            "admin": {"address": admin, "profiles": True}, "services": {}, **more}


def written(config):
    return json.dumps(config, indent=1)  # JSON is YAML


class Sidecar(Process):
    """A sidecar on free ports. Its configuration is written when it starts, and by write."""

    def __init__(self, suite, name, env=None, **config):
        self.admin = free_port()
        self.config = configuration(name, at(self.admin), **config)
        self.file = suite.path(name + ".yaml")
        self.ports = []
        super().__init__(name, [tool("remora"), "run", "-c", self.file], suite.path(name + ".log"), self.has_endpoints, env)
        suite.add(self)

    def listener(self, protocol, service=None, **more):
        """Adds a listener, and returns its port."""
        port = free_port()
        self.ports.append(port)
        listener = {"name": f"{protocol}-{port}", "address": at(port), "protocol": protocol, **more}
        self.config["listeners"].append(listener | ({"service": service} if service else {}))
        return port

    def service(self, name, protocol, *ports, **more):
        """Adds a service with endpoints on these ports, or one that is found in etcd if there are none."""
        found = {"discover": "static", "endpoints": [at(p) for p in ports]} if ports else {"discover": "etcd"}
        self.config["services"][name] = {**found, "protocol": protocol, "connect_timeout": "10s", **more}

    def register(self, service, port):
        """Announces the listener on a port as an endpoint of a service."""
        name = next(l["name"] for l in self.config["listeners"] if l["address"] == at(port))
        self.config.setdefault("register", []).append({"service": service, "listener": name, "advertise": at(port)})

    def write(self):
        with open(self.file, "w", encoding="utf-8") as f:
            f.write(written(self.config))

    def start(self):
        self.write()
        return super().start()

    def fetch(self, path):
        """The bytes of path. A 503, and an incomplete response or none, are of a process that got too little processor
        time: the request is repeated."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self._ask(path)
            except urllib.error.HTTPError as e:
                if e.code != 503 or time.monotonic() > end:
                    raise
            except (http.client.IncompleteRead, ConnectionResetError):
                if time.monotonic() > end:
                    raise
            time.sleep(0.2)

    def _ask(self, path):
        with urllib.request.urlopen(f"http://{at(self.admin)}{path}", timeout=PATIENCE) as r:
            return r.read()

    def get(self, path):
        return self.fetch(path).decode()

    def has_endpoints(self):
        """Reports whether it listens and knows the endpoints of its services."""
        try:
            return self._ask("/readyz")
        except (OSError, http.client.HTTPException):
            return False

    def metrics(self, name):
        """The values of a metric, by the text of its labels."""
        found = re.findall(rf"^{name}(\{{.*\}})? (\S+)$", self.get("/metrics"), re.MULTILINE)
        return {labels: float(value) for labels, value in found}

    def goroutines(self):
        """How many there are without the engine's pooled workers, which end when they have been idle long enough."""
        stacks = self.get("/debug/pprof/goroutine?debug=1").split("\n\n")
        counts = [(int(m.group(1)), stack) for stack in stacks if (m := re.search(r"^(\d+) @", stack, re.MULTILINE))]
        return sum(n for n, stack in counts if "ants/v2.(*goWorker).run" not in stack)

    def pending(self):
        """The sum of its counts of unfinished work."""
        names = "remora_(?:requests_pending|requests_queued|slots_in_use|endpoint_pending)"
        values = re.findall(rf"^{names}\{{.*\}} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return int(sum(float(v) for v in values))
