"""The kinds of traffic through the sidecars. Each is a thread that repeats one action
while its gate is open."""

import collections
import hashlib
import http.client
import random
import threading
import time

import requests
from websockets.sync.client import connect

from harness.load import load
from harness.process import PATIENCE, run, shell, tool, wait_for
from harness.suite import expect

MiB = 1 << 20
RATE = 120    # requests a second to compute
FORMS = 30    # calls a second of Dubbo methods
LONG = 24 * MiB  # past limits.message: a stream
PACE = 8 * MiB   # bytes a second of those

# Options of one run of the load generator, which is five seconds long.
WINDOW = ["--duration", "5s", "--warmup", "0s", "--connections", "16", "--max-connections", "128", "--timeout", "30s"]

# The share that may fail, over all kills, of requests to replicas and sidecars that are
# killed: a retry costs a token, and may meet the next kill. Of the others none may fail
# but those that are Cut.
LOST = 0.002


class Cut(Exception):
    """The application at the other end was killed meanwhile."""


class Kind(threading.Thread):
    """A kind of traffic: action(self) does one thing, and raises what is wrong with it: AssertionError
    where a response is not the right one. Of lost, a share, may fail."""

    def __init__(self, name, action, lost, gate):
        super().__init__(name=name, daemon=True)
        self.action, self.lost, self.gate, self.busy = action, lost, gate, False
        self.done, self.cut = 0, 0
        self.wrong, self.garbled = collections.Counter(), []  # failures by their text; wrong responses
        self.start()

    def run(self):
        while True:
            self.gate.wait()
            self.busy = True
            try:
                if self.gate.is_set():
                    self.done += self.action(self) or 0
            except Cut:
                self.cut += 1
            except AssertionError as e:
                self.garbled.append(str(e))
            except Exception as e:  # pylint: disable=broad-except
                self.wrong[f"{type(e).__name__}: {e}"[:200]] += 1
                time.sleep(0.2)
            self.busy = False

    def failed(self):
        return sum(self.wrong.values())

    def bound(self):
        """How many may fail, of those that were done."""
        return max(1, self.lost * self.done) if self.lost else 0


class Traffic:
    """All kinds, over a mesh. latencies are (second, P50, P99) of compute's windows, in ms."""

    def __init__(self, mesh, clock):
        self.mesh, self.clock = mesh, clock
        self.base = f"http://127.0.0.1:{mesh.egress}"
        self.latencies, self.gate = [], threading.Event()
        self.form = mesh.suite.file(
            "form", "interface=com.example.Hello&method=hash&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=soak")
        self.sums = {n: summary(run([tool("bulk"), "bytes", str(n)], text=False).stdout)
                     for n in (0, 1, 300, 65536, MiB, LONG)}
        self.kinds = [Kind(name, action, lost, self.gate) for name, action, lost in (
            ("compute, hedged", self.compute, LOST), ("Dubbo forms", self.call, LOST), ("sizes", self.sizes, LOST),
            ("events", self.events, 0), ("WebSocket", self.sockets, 0), ("long downloads", self.download, 0),
            ("long uploads", self.upload, 0), ("readers that leave", self.leave, 0))]

    def pause(self):
        """Returns once nothing is in flight."""
        self.gate.clear()
        wait_for("the end of traffic", lambda: not any(k.busy for k in self.kinds))

    def _load(self, kind, url, *options):
        report = load(url, *WINDOW, *options)
        for status, n in report["statuses"].items():
            if status != "200":
                kind.wrong[f"status {status}"] += n
        for what, n in report["error_kinds"].items():
            if what != "status":  # counted above
                kind.wrong[what] += n
        expect("responses with another's nonce", report["error_kinds"].get("nonce"), None)
        return report

    def compute(self, kind):
        at = self.clock()
        report = self._load(kind, self.base + "/compute", "--rate", str(RATE))
        self.latencies.append((at, report["p50_ms"], report["p99_ms"]))
        return report["requests"]

    def call(self, kind):
        report = self._load(kind, f"http://127.0.0.1:{self.mesh.forms}/", "--rate", str(FORMS), "--no-nonce", "--body", self.form,
                            "--header", "Content-Type: application/x-www-form-urlencoded")
        return report["requests"]

    def sizes(self, _):
        """Bodies of 0 bytes to 1 MiB on one connection, GET, POST and PUT, whole both ways."""
        conn = http.client.HTTPConnection("127.0.0.1", self.mesh.egress, timeout=PATIENCE)
        try:
            for _ in range(20):
                body = random.randbytes(int(MiB ** random.random()) if random.random() > 0.1 else random.choice((0, MiB)))
                expect("echo", ask(conn, "POST", "/echo", body) == body, True)
                size = random.choice((0, 1, 300, 65536, MiB))
                with self.bulk():
                    got = ask(conn, "GET", f"/bytes/{size}")
                    expect("bytes", summary(got), self.sums[size])
                    expect("sum", ask(conn, "PUT", "/sum", got).decode(), self.sums[size] + "\n")
                time.sleep(0.05)
            return 60
        finally:
            conn.close()

    def bulk(self):
        """A context in which errors are Cut if the bulk server was killed meanwhile."""
        return Unless(self.mesh.bulk)

    def events(self, kind):
        """Server-Sent Events. The server sends each one once the one before is acknowledged."""
        me, seen = f"soak-{kind.done}-{time.monotonic_ns()}", 0
        with requests.get(f"{self.base}/events/{me}", stream=True, timeout=PATIENCE) as response:
            response.raise_for_status()
            for line in response.iter_lines(chunk_size=1):
                if line.startswith(b"data: "):
                    expect("event", line, f"data: event {seen}".encode())
                    seen += 1
                    requests.post(f"{self.base}/acknowledge/{me}/{seen}", timeout=PATIENCE).raise_for_status()
                    time.sleep(0.02)
                if seen == 50:
                    break
        expect("events", seen, 50)
        return seen

    def sockets(self, _):
        with connect(f"ws://127.0.0.1:{self.mesh.egress}/ws", open_timeout=PATIENCE, close_timeout=PATIENCE, proxy=None,
                     max_size=2 * MiB, compression=None) as ws:
            for _ in range(50):
                message = random.randbytes(int(MiB ** random.random()))
                ws.send(message)
                expect("echo", ws.recv(PATIENCE) == message, True)
                time.sleep(0.05)
        return 50

    def _curl(self, command, status=0):
        with self.bulk():
            ran = shell(command, check=False)
            if ran.returncode != status:
                raise RuntimeError(f"{command}: exit {ran.returncode}: {ran.stderr[-200:]}")
            return ran.stdout.strip()

    def download(self, _):
        expect("sum", self._curl(f"curl -sS --fail '{self.base}/bytes/{LONG}?rate={PACE}' | {tool('bulk')} sum"), self.sums[LONG])
        return 1

    def upload(self, _):
        expect("sum", self._curl(f"{tool('bulk')} bytes {LONG} {PACE} | curl -sS --fail -T - {self.base}/sum"), self.sums[LONG])
        return 1

    def leave(self, _):
        """A client that leaves in the middle of a response without end."""
        got = self._curl(f"curl -sS --fail -o /dev/null -w '%{{size_download}}' --max-time 1 '{self.base}/bytes/{1 << 30}?rate={PACE}'",
                         status=28)
        return int(int(got) > 0)  # else it left before the response


class Unless:
    """A context in which errors are Cut if the process was killed, or was missing at its beginning. (Whether it
    has ended is no criterion: its connections end first.)"""

    def __init__(self, process):
        self.process, self.life = process, process.life

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if isinstance(error, Exception) and (self.life is None or self.process.life is not self.life):
            raise Cut from error


def ask(conn, method, path, body=None):
    conn.request(method, path, body)
    response = conn.getresponse()
    got = response.read()
    if response.status != 200:
        raise RuntimeError(f"{method} {path}: status {response.status} {response.headers['x-remora-error']}")
    return got


def summary(b):
    """The length and SHA-256, as bulk prints them."""
    return f"{len(b)} {hashlib.sha256(b).hexdigest()}"
