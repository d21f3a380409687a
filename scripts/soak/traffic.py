"""What goes through the sidecars: each kind of traffic is a thread that does one
thing after another while its gate is open."""

import collections
import hashlib
import http.client
import json
import os
import random
import subprocess
import threading
import time

import requests
from websockets.sync.client import connect

from harness import PATIENCE

MiB = 1 << 20
WINDOW = 5    # seconds of one run of the load generator
RATE = 120    # requests a second to compute
FORMS = 30    # calls a second of Dubbo methods
LONG = 24 * MiB  # past limits.message: a stream
PACE = 8 * MiB   # bytes a second of those

# The share that may fail, of all kills, of what goes to replicas and sidecars that are killed: a retry
# costs a token, and may meet the next kill. Of the others none may, but what is Cut.
LOST = 0.002


class Cut(Exception):
    """The application at the other end was killed meanwhile."""


class Garbled(Exception):
    """An answer came and is not what was asked for."""


class Kind(threading.Thread):
    """A kind of traffic: once(self) does one thing and raises what is wrong with it. Of lost, a share,
    may fail."""

    def __init__(self, name, once, lost, gate):
        super().__init__(name=name, daemon=True)
        self.once, self.lost, self.gate, self.busy = once, lost, gate, False
        self.done, self.cut = 0, 0
        self.wrong, self.garbled = collections.Counter(), []  # by what failed; what never may
        self.start()

    def run(self):
        while True:
            self.gate.wait()
            self.busy = True
            try:
                if self.gate.is_set():
                    self.done += self.once(self) or 0
            except Cut:
                self.cut += 1
            except Garbled as e:
                self.garbled.append(str(e)[:200])
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
    """All kinds, over a mesh; latencies are (second, P50, P99) of compute's windows, in ms."""

    def __init__(self, mesh, clock):
        self.mesh, self.clock = mesh, clock
        self.base = f"http://127.0.0.1:{mesh.egress}"
        self.latencies, self.gate = [], threading.Event()
        self.form = os.path.join(mesh.suite.dir, "form")
        with open(self.form, "w", encoding="ascii") as f:
            f.write("interface=com.example.Hello&method=hash&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=soak")
        self.sums = {n: self._sum(n) for n in (0, 1, 300, 65536, MiB, LONG)}
        self.kinds = [Kind(name, once, lost, self.gate) for name, once, lost in (
            ("compute, hedged", self.compute, LOST), ("Dubbo forms", self.forms, LOST), ("sizes", self.sizes, LOST),
            ("events", self.events, 0), ("WebSocket", self.sockets, 0), ("long downloads", self.download, 0),
            ("long uploads", self.upload, 0), ("readers that leave", self.leave, 0))]

    def pause(self):
        """Returns once nothing is under way."""
        self.gate.clear()
        end = time.monotonic() + PATIENCE
        while any(k.busy for k in self.kinds):
            if time.monotonic() > end:
                raise RuntimeError("does not end: " + ", ".join(k.name for k in self.kinds if k.busy))
            time.sleep(0.1)

    def _load(self, kind, url, *options):
        out = subprocess.run([self.mesh.tool("remora-lab"), "load", "--json", "--duration", f"{WINDOW}s", "--warmup", "0s",
                              "--connections", "16", "--max-connections", "128", "--timeout", "30s", *options, url],
                             stdin=subprocess.DEVNULL, capture_output=True, check=True)
        report = json.loads(out.stdout)
        for status, n in report["statuses"].items():
            if status != "200":
                kind.wrong[f"status {status}"] += n
        for what, n in report["error_kinds"].items():
            if what != "status":  # counted above
                kind.wrong[what] += n
        if "nonce" in report["error_kinds"]:
            raise Garbled("another's nonce")
        return report

    def compute(self, kind):
        at = self.clock()
        report = self._load(kind, self.base + "/compute", "--rate", str(RATE))
        self.latencies.append((at, report["p50_ms"], report["p99_ms"]))
        return report["requests"]

    def forms(self, kind):
        report = self._load(kind, f"http://127.0.0.1:{self.mesh.forms}/", "--rate", str(FORMS), "--no-nonce", "--body", self.form,
                            "--header", "Content-Type: application/x-www-form-urlencoded")
        return report["requests"]

    def sizes(self, _):
        """Bodies of 0 bytes to 1 MiB on one connection, GET, POST and PUT, whole both ways."""
        conn = http.client.HTTPConnection("127.0.0.1", self.mesh.egress, timeout=PATIENCE)
        try:
            for n in range(20):
                body = random.randbytes(int(MiB ** random.random()) if random.random() > 0.1 else random.choice((0, MiB)))
                expect("echo", ask(conn, "POST", "/echo", body), body)
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
        """What is raised within counts as Cut if the bulk server was away meanwhile."""
        return Unless(self.mesh.bulk)

    def _sum(self, n):
        made = subprocess.run([self.mesh.tool("bulk"), "bytes", str(n)], stdout=subprocess.PIPE, check=True)
        return summary(made.stdout)

    def events(self, kind):
        """Server-Sent Events, each sent once the one before is acknowledged."""
        me, seen = f"soak-{kind.done}-{time.monotonic_ns()}", 0
        with requests.get(f"{self.base}/events/{me}", stream=True, timeout=PATIENCE) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines(chunk_size=1):
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
                expect("echo", ws.recv(PATIENCE), message)
                time.sleep(0.05)
        return 50

    def _curl(self, command, wanted=0):
        with self.bulk():
            ran = subprocess.run(["bash", "-o", "pipefail", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if ran.returncode != wanted:
                raise RuntimeError(f"{command}: exit {ran.returncode}: {ran.stderr.decode()[-200:]}")
            return ran.stdout.decode()

    def download(self, _):
        got = self._curl(f"curl -sS --fail '{self.base}/bytes/{LONG}?rate={PACE}' | {self.mesh.tool('bulk')} sum")
        expect("sum", got.strip(), self.sums[LONG])
        return 1

    def upload(self, _):
        got = self._curl(f"{self.mesh.tool('bulk')} bytes {LONG} {PACE} | curl -sS --fail -T - {self.base}/sum")
        expect("sum", got.strip(), self.sums[LONG])
        return 1

    def leave(self, _):
        """A client that goes away in the middle of an answer without end."""
        got = self._curl(f"curl -sS --fail -o /dev/null -w '%{{size_download}}' --max-time 1 '{self.base}/bytes/{1 << 30}?rate={PACE}'", wanted=28)
        return int(int(got) > 0)  # else it left before the answer


class Unless:
    """A context in which errors are Cut if the process was killed, or was not there when it began. (Whether it
    has ended can't be asked: its connections end first, and who waits for it keeps others from knowing.)"""

    def __init__(self, process):
        self.process, self.life = process, process.life

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if isinstance(error, Exception) and (self.life is None or self.process.life is not self.life):
            raise Cut from error


def ask(conn, method, path, body=None):
    conn.request(method, path, body)
    answer = conn.getresponse()
    got = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{method} {path}: status {answer.status} {answer.headers['x-remora-error']}")
    return got


def summary(b):
    """The length and SHA-256, as bulk prints them."""
    return f"{len(b)} {hashlib.sha256(b).hexdigest()}"


def expect(what, got, want):
    if got != want:
        raise Garbled(f"{what}: {str(got)[:80]!r}, want {str(want)[:80]!r}")
