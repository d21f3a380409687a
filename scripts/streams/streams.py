"""Streams through two sidecars, between programs that are not Remora's own.

    streams.py BIN DIR BYTES    BIN holds remora, remora-lab and bulk, DIR takes
                                the logs, BYTES go each way through curl
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time

import requests
import websockets

from harness import Suite, free_ports

HERE = os.path.dirname(os.path.abspath(__file__))
MiB, GiB = 1 << 20, 1 << 30

PROVIDER = """
node: {{id: provider}}
admin: {{address: "127.0.0.1:{provider_admin}"}}
listeners:
  - {{name: bulk, address: "127.0.0.1:{bulk_link}", protocol: link, service: bulk}}
  - {{name: web, address: "127.0.0.1:{web_link}", protocol: link, service: web}}
  - {{name: small, address: "127.0.0.1:{small_link}", protocol: link, service: small}}
services:
  bulk: {{discover: static, connect_timeout: 10s, endpoints: ["127.0.0.1:{bulk}"], protocol: http}}
  web: {{discover: static, connect_timeout: 10s, endpoints: ["127.0.0.1:{web}"], protocol: http}}
  small: {{discover: static, connect_timeout: 10s, endpoints: ["127.0.0.1:{small}"], protocol: http}}
"""

CONSUMER = """
node: {{id: consumer}}
admin: {{address: "127.0.0.1:{consumer_admin}"}}
listeners:
  - {{name: egress, address: "127.0.0.1:{egress}", protocol: http}}
  - {{name: raw, address: "127.0.0.1:{raw}", protocol: tcp, service: web}}
routes:
  - {{match: {{host: web, method: [CONNECT]}}, service: web}}
  - {{match: {{host: web}}, service: web}}
  - {{match: {{path: /small}}, service: small}}
  - {{service: bulk}}
services:
  bulk: {{discover: static, connect_timeout: 10s, endpoints: ["127.0.0.1:{bulk_link}"], protocol: link}}
  web: {{discover: static, connect_timeout: 10s, endpoints: ["127.0.0.1:{web_link}"], protocol: link}}
  small: {{discover: static, connect_timeout: 10s, endpoints: ["127.0.0.1:{small_link}"], protocol: link}}
"""

NAMES = ("provider_admin", "consumer_admin", "bulk", "web", "small", "bulk_link", "web_link", "small_link", "egress",
         "raw")

# How much a sidecar may grow while it carries gigabytes: what its runtime and
# the kernel's pipes take, and nothing that depends on the length.
GROWTH = 32 * MiB

# What streams carry each way beside small requests, in bytes a second: so much
# that they would show, and little enough to leave the processors something to do.
# They are paced by their senders; curl's own limit makes bursts of megabytes.
RATE = int(os.environ.get("RATE", "25000000"))

# Rounds of small requests with and without streams, in turn.
ROUNDS = int(os.environ.get("ROUNDS", "3"))

# Longer than anything takes that works.
PATIENCE = 60


class Bench:
    """The processes, and where they are."""

    def __init__(self, suite, binaries):
        self.suite, self.bin = suite, binaries
        self.port = dict(zip(NAMES, free_ports(len(NAMES))))
        self.egress = f"http://127.0.0.1:{self.port['egress']}"
        self.start("bulk", [self.tool("bulk"), "serve", f"127.0.0.1:{self.port['bulk']}"], "bulk")
        # Apart, so that it is not its own process's streams that small requests wait for.
        self.start("small", [self.tool("bulk"), "serve", f"127.0.0.1:{self.port['small']}"], "small")
        self.start("web", [sys.executable, os.path.join(HERE, "app.py"), str(self.port["web"])], "web")
        self.sidecars = [self.sidecar("provider", PROVIDER, "bulk_link"), self.sidecar("consumer", CONSUMER, "egress")]

    def tool(self, name):
        return os.path.join(self.bin, name)

    def start(self, name, argv, port):
        return self.suite.process(name, argv, self.port[port]).start()

    def sidecar(self, name, text, port):
        return self.suite.sidecar(name, self.tool("remora"), text.format(**self.port), self.port[port]).start()

    def sum(self, n):
        """The length and SHA-256 of the first n bytes, as bulk prints them."""
        return shell(f"{self.tool('bulk')} bytes {n} | {self.tool('bulk')} sum")


class Memory:
    """The greatest resident memory of some processes while it watches."""

    def __init__(self, processes):
        self.processes, self.over = processes, threading.Event()
        self.before = [p.rss() for p in processes]
        self.most = list(self.before)
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.over.wait(0.1):
            self.most = [max(most, p.rss()) for most, p in zip(self.most, self.processes)]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def grown(self):
        return max(most - before for most, before in zip(self.most, self.before)) * 1024

    def __str__(self):
        return ", ".join(f"{p.name} {before / 1024:.1f} -> {most / 1024:.1f} MiB"
                         for p, before, most in zip(self.processes, self.before, self.most))


def title(text):
    print(f"\n== {text}", flush=True)


def shell(command, seconds=600):
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", command], stdin=subprocess.DEVNULL, capture_output=True,
                         timeout=seconds, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{command}: exit {ran.returncode}: {ran.stderr.decode()[-500:]}")
    return ran.stdout.decode().strip()


def expect(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: {got!r}, want {want!r}")


def bulk(suite, bench, n):
    curl = "curl -sS --fail"
    source, sink = f"{bench.tool('bulk')} bytes", f"{bench.tool('bulk')} sum"
    file = os.path.join(suite.dir, "1GiB")
    shell(f"{source} {GiB} >{file}")
    sums = {size: bench.sum(size) for size in (n, GiB)}

    def moves(name, size, command):
        began = time.monotonic()
        with Memory(bench.sidecars) as memory:
            try:
                expect("length and SHA-256", shell(command), sums[size])
            except Exception as e:  # pylint: disable=broad-except
                suite.check(name, False, str(e))
                return
        took = time.monotonic() - began
        print(f"      {size / GiB:.1f} GiB in {took:.1f} s, {size / MiB / took:.0f} MiB/s; {memory}")
        suite.check(name, True)
        suite.check(f"{name}: no sidecar grows by {GROWTH // MiB} MiB", memory.grown() < GROWTH, str(memory))

    moves("download", n, f"{curl} {bench.egress}/bytes/{n} | {sink}")
    moves("upload, chunked", n, f"{source} {n} | {curl} -T - {bench.egress}/sum")
    moves("download, chunked", GiB, f"{curl} {bench.egress}/chunks/{GiB} | {sink}")
    moves("upload with Content-Length", GiB, f"{curl} -T {file} {bench.egress}/sum")
    moves("upload without Expect", GiB, f"{curl} -H Expect: -T {file} {bench.egress}/sum")
    os.remove(file)


def paced(suite, bench):
    web = {"Host": "web"}

    def follows(kind, lines):
        """Reads events one by one, and leaves; the server sees both."""
        post = lambda n: requests.post(f"{bench.egress}/acknowledge/{kind}/{n}", headers=web, timeout=PATIENCE)
        with requests.get(f"{bench.egress}/{kind}/{kind}", headers=web, stream=True, timeout=PATIENCE) as answer:
            expect("status", answer.status_code, 200)
            seen = 0
            for line in answer.iter_lines(chunk_size=1):
                if line.startswith(lines):
                    expect("item", line, lines + str(seen).encode())
                    seen += 1
                    expect("acknowledged", post(seen).text, "ok")
                if seen == 100:
                    break
            expect("items", seen, 100)
        expect("the server", requests.get(f"{bench.egress}/gone/{kind}", headers=web, timeout=PATIENCE).text, "gone")

    suite.attempt("Server-Sent Events: 100, one by one, and a reader that leaves", follows, "events", b"data: event ")
    suite.attempt("a chunked answer that pauses: the same", follows, "pausing", b"part ")


def sockets(suite, bench):
    uri = "ws://web/ws"

    def connect(port="egress", **more):
        return websockets.connect(uri, host="127.0.0.1", port=bench.port[port], max_size=64 * MiB,
                                  open_timeout=PATIENCE, close_timeout=PATIENCE, proxy=None, **more)

    async def echoes(port="egress"):
        async with connect(port, subprotocols=["echo"]) as ws:
            expect("subprotocol", ws.subprotocol, "echo")
            for message in ("", "text", "\u2603" * 1000, b"\x00\xff", os.urandom(16 * MiB)):
                await ws.send(message)
                expect("echo", await ws.recv() == message, True)
            await asyncio.wait_for(await ws.ping(), PATIENCE)
            await ws.send("count 10000")
            for i in range(10000):
                expect("message", await ws.recv(), str(i))

    async def closes():
        async with connect() as ws:
            await ws.send("close 4001")
            await ws.wait_closed()
            expect("close", (ws.close_code, ws.close_reason), (4001, "as you wish"))

    async def vanishes():
        async with connect() as ws:
            await ws.send("x")
            await ws.recv()
            ws.transport.abort()
        answer = await asyncio.to_thread(requests.get, f"{bench.egress}/gone/ws", headers={"Host": "web"},
                                         timeout=PATIENCE)
        expect("the server", answer.text, "gone")

    async def many():
        async def one(i):
            async with connect() as ws:
                for j in range(20):
                    await ws.send(f"{i} {j}")
                    expect("echo", await ws.recv(), f"{i} {j}")
        await asyncio.gather(*(one(i) for i in range(200)))

    async def refused():
        try:
            async with websockets.connect("ws://web/nowhere", host="127.0.0.1", port=bench.port["egress"], proxy=None):
                raise AssertionError("connected")
        except websockets.InvalidStatus as e:
            expect("status", e.response.status_code in (403, 404), True)

    def run(name, function, *args):
        suite.attempt(name, lambda: asyncio.run(asyncio.wait_for(function(*args), PATIENCE)))

    run("WebSocket: echoes of 0 bytes to 16 MiB, ping, 10,000 messages", echoes)
    run("WebSocket: the server closes with its code", closes)
    run("WebSocket: a client that vanishes", vanishes)
    run("WebSocket: 200 at a time", many)
    run("WebSocket: one that the server refuses", refused)
    run("WebSocket through tcp listeners", echoes, "raw")


def connect(suite, bench):
    def tunnels(host, want):
        got = shell(f"curl -s --proxytunnel -x {bench.egress} -X POST http://{host}:80/acknowledge/x/1 "
                    "-w ' %{http_connect}' || true")
        expect("answer, and status of the CONNECT", got, want)

    suite.attempt("curl: CONNECT", tunnels, "web", "ok 200")
    suite.attempt("curl: CONNECT to what no route names", tunnels, "bulk", "404")


def beside(suite, bench):
    """Small requests through the sidecars, while streams of RATE bytes a second go
    each way past them, and through them.

    What streams past the sidecars cost is the machine's part: generator, curl and
    servers share its processors with the sidecars. With root's rights, requests that
    were due while a processor stood still are left out: of those the machine decides.
    """
    steal = "--steal" if os.geteuid() == 0 else ""

    def small():
        r = json.loads(shell(f"{bench.tool('remora-lab')} load --json {steal} --method GET --rate 500 --connections 16 "
                             f"--duration 3s --warmup 500ms {bench.egress}/small"))
        counted = r.pop("undisturbed", r)
        counted["left"] = 100 * counted["requests"] / r["requests"]
        return r | counted

    def streams(base):
        up = f"{bench.tool('bulk')} bytes {100 * GiB} {RATE} | curl -sS -T - {base}/sum"
        down = f"curl -sS -o /dev/null '{base}/bytes/{100 * GiB}?rate={RATE}'"
        return [subprocess.Popen(["bash", "-c", "exec 2>/dev/null; " + c], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, start_new_session=True) for c in (up, down)]

    states = {"alone": None, "streams past": f"http://127.0.0.1:{bench.port['bulk']}", "streams through": bench.egress}
    rows = {state: [] for state in states}
    for _ in range(ROUNDS):
        for state, base in states.items():
            running = streams(base) if base else []
            try:
                rows[state].append(small())
            finally:
                suite.check("the streams last", all(p.poll() is None for p in running))
                for p in running:
                    os.killpg(p.pid, 9)
                    p.wait()
    print(f"{f'medians of {ROUNDS}':16}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}{'left %':>10}{'p99 / alone':>14}")
    for state, runs in rows.items():
        row = [median(runs, key) for key in ("p50_ms", "p99_ms", "max_ms", "left")]
        row.append(row[1] / median(rows["alone"], "p99_ms"))
        print(f"{state:16}" + "".join(f"{v:10.2f}" for v in row[:4]) + f"{row[4]:14.2f}", flush=True)
        suite.check(f"small requests, {state}: no errors", all(r["errors"] == 0 for r in runs),
                    str([r["error_kinds"] for r in runs]))


def median(runs, key):
    return sorted(r[key] for r in runs)[len(runs) // 2]


def left(suite, bench, before):
    """Nothing is left of any stream."""
    for p, fds in zip(bench.sidecars, before):
        end = time.monotonic() + PATIENCE
        while p.fds() > fds and time.monotonic() < end:
            time.sleep(0.1)
        suite.check(f"{p.name}: descriptors are back", p.fds() <= fds, f"{fds} before, {p.fds()} after")


def main():
    suite = Suite(sys.argv[2])
    bench = Bench(suite, sys.argv[1])
    requests.get(f"{bench.egress}/small", timeout=PATIENCE)
    fds = [p.fds() + 8 for p in bench.sidecars]  # links and pooled connections that come to stay
    for name, part in (("Server-Sent Events", paced), ("WebSocket", sockets), ("CONNECT", connect),
                       ("small requests beside streams", beside)):
        title(name)
        part(suite, bench)
    title("bulk")
    bulk(suite, bench, int(sys.argv[3]))
    title("afterwards")
    left(suite, bench, fds)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
