"""The ways to applications, and the traffic on them."""

import http.client
import json
import random
import signal
import threading
import time

from harness.process import PATIENCE, Failed, at, wait_for
from harness.sidecar import Sidecar
from harness.suite import expect


def send(port, service, number=0):
    """Sends an order by a connection of its own, and returns the name of the application that has served it."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        client.request("POST", "/orders", json.dumps({"number": number}), {"Host": service, "Content-Type": "application/json"})
        response = client.getresponse()
        text = response.read()
    finally:
        client.close()
    if response.status != 200:
        raise Failed(f"{response.status} {response.headers['x-remora-error']}")
    served = json.loads(text)
    expect("the order", served["order"], {"number": number})
    return served["name"]


def outcome(port, service):
    """The name of the application that serves an order, or the error."""
    try:
        return send(port, service)
    except (Failed, OSError, http.client.HTTPException) as e:
        return str(e)


def reload(sidecar):
    """Applies the configuration of a running sidecar."""
    before = sidecar.metrics("remora_config_reloads_total")
    sidecar.write()
    sidecar.child.send_signal(signal.SIGHUP)
    after = wait_for("the reload", lambda: (now := sidecar.metrics("remora_config_reloads_total")) != before and now)
    if sum(after[k] - before[k] for k in ('{outcome="applied"}', '{outcome="unchanged"}')) != 1:
        raise Failed(f"the reload was refused: {sidecar.tail()}")


class Ways:
    """Two ways to each service: through the sidecar one, and through the sidecars consumer and provider."""

    def __init__(self, suite, name):
        self.one, self.consumer, self.provider = (
            Sidecar(suite, f"{name}-{part}", loops=1, routes=[]) for part in ("one", "consumer", "provider"))
        self.ports = {"one": self.one.listener("http"), "two": self.consumer.listener("http")}
        self.front, self.back = (self.one, self.consumer), (self.one, self.provider)

    def serve(self, service, *applications, **more):
        """Adds a service, which is found by its host name."""
        for sidecar in self.back:
            sidecar.service(service, "http", *(a.port for a in applications), **more)
        self.consumer.service(service, "link", self.provider.listener("link", service))
        for sidecar in self.front:
            sidecar.config["routes"].append({"match": {"host": service}, "service": service})
        return self

    def start(self):
        for sidecar in (self.provider, self.consumer, self.one):
            sidecar.start()
        return self

    def move(self, service, *applications):
        """Changes the applications of a service by a reload."""
        for sidecar in self.back:
            sidecar.config["services"][service]["endpoints"] = [at(a.port) for a in applications]
            reload(sidecar)


class Traffic:
    """Clients that send orders until the traffic ends. served counts them by application."""

    def __init__(self):
        self.served, self.failures = {}, []
        self._lock, self._ended, self._threads = threading.Lock(), threading.Event(), []

    def busy(self, ways, service, clients=1):
        """Adds clients on both ways that hardly pause."""
        for port in ways.ports.values():
            for _ in range(clients):
                self.add(port, service, lambda: random.uniform(0.002, 0.01))
        return self

    def add(self, port, service, pause):
        """Adds a client. pause returns the seconds between a response and its next order."""
        thread = threading.Thread(target=self._client, args=(port, service, pause), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _client(self, port, service, pause):
        number = 0
        while True:
            number += 1
            name = failure = None
            try:
                name = send(port, service, number)
            except Exception as e:  # pylint: disable=broad-except
                failure = f"{service}: {type(e).__name__}: {e}"
            with self._lock:
                if failure:
                    self.failures.append(failure)
                else:
                    self.served[name] = self.served.get(name, 0) + 1
            if self._ended.wait(pause()):
                return

    def run(self, seconds):
        time.sleep(seconds)
        return self

    def end(self):
        """Waits for the last responses. Fails if an order has failed."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise Failed(f"{len(self.failures)} failed, {sum(self.served.values())} were served: {sorted(set(self.failures))[:5]}")
        return self.served
