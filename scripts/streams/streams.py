"""Streams through two sidecars, between programs that are not Remora's own.

    streams.py BYTES    BYTES go each way through curl
"""

import asyncio
import os
import subprocess
import sys
import time

import requests
import websockets

from harness.load import load
from harness.process import PATIENCE, Timeout, free_port, shell, tool, wait_for
from harness.sidecar import Sidecar
from harness.suite import Suite, expect, table, title

APP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "app.py")
MiB, GiB = 1 << 20, 1 << 30

# How much a sidecar may grow while it carries gigabytes: the part of its runtime and
# the kernel's pipes, independent of the length.
GROWTH = 32 * MiB

# What streams carry each way beside small requests, in bytes a second: enough to show,
# and little enough to leave the processors free time. Their senders pace them; curl's
# own limit makes bursts of megabytes.
RATE = int(os.environ.get("RATE", "25000000"))

# Rounds of small requests with and without streams, in turn.
ROUNDS = int(os.environ.get("ROUNDS", "3"))


class Bench:
    """The processes, and where they are."""

    def __init__(self, suite):
        self.bulk_port = free_port()
        ports = {"bulk": self.bulk_port, "web": free_port(), "small": free_port()}
        # Small requests have a server of their own, so that they don't wait for its streams.
        for name in ("bulk", "small"):
            suite.process(name, [tool("bulk"), "serve", f"127.0.0.1:{ports[name]}"], ports[name]).start()
        suite.process("web", [sys.executable, APP, str(ports["web"])], ports["web"]).start()
        provider, consumer = Sidecar(suite, "provider"), Sidecar(suite, "consumer", routes=[
            {"match": {"host": "web", "method": ["CONNECT"]}, "service": "web"}, {"match": {"host": "web"}, "service": "web"},
            {"match": {"path": "/small"}, "service": "small"}, {"service": "bulk"}])
        for name, port in ports.items():
            provider.service(name, "http", port, opaque=name == "web")
            consumer.service(name, "link", provider.listener("link", name))
        self.sidecars = [provider.start(), consumer]
        self.port, self.raw = consumer.listener("http"), consumer.listener("tcp", "web")
        consumer.start()
        self.egress = f"http://127.0.0.1:{self.port}"

    def sum(self, n):
        """The length and SHA-256 of the first n bytes, as bulk prints them."""
        return run(f"{tool('bulk')} bytes {n} | {tool('bulk')} sum")


def run(command):
    """The output of a pipeline."""
    return shell(command).stdout.strip()


def bulk(suite, bench, n):
    curl = "curl -sS --fail"
    source, sink = f"{tool('bulk')} bytes", f"{tool('bulk')} sum"
    file = suite.path("1GiB")
    run(f"{source} {GiB} >{file}")
    sums = {size: bench.sum(size) for size in (n, GiB)}

    def moves(name, size, command):
        before = [p.rss() for p in bench.sidecars]
        for p in bench.sidecars:
            p.forget_peak()
        began = time.monotonic()
        if not suite.attempt(name, lambda: expect("length and SHA-256", run(command), sums[size])):
            return
        took = time.monotonic() - began
        grown = {p.name: p.peak() - b for p, b in zip(bench.sidecars, before)}
        memory = ", ".join(f"{name} grew by {n / MiB:.1f} MiB" for name, n in grown.items())
        print(f"      {size / GiB:.1f} GiB in {took:.1f} s, {size / MiB / took:.0f} MiB/s; {memory}")
        suite.check(f"{name}: no sidecar grows by {GROWTH // MiB} MiB", max(grown.values()) < GROWTH, memory)

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
        with requests.get(f"{bench.egress}/{kind}/{kind}", headers=web, stream=True, timeout=PATIENCE) as response:
            expect("status", response.status_code, 200)
            seen = 0
            for line in response.iter_lines(chunk_size=1):
                if line.startswith(lines):
                    expect("item", line, lines + str(seen).encode())
                    seen += 1
                    expect("acknowledged", post(seen).text, "ok")
                if seen == 100:
                    break
            expect("items", seen, 100)
        expect("the server", requests.get(f"{bench.egress}/gone/{kind}", headers=web, timeout=PATIENCE).text, "gone")

    suite.attempt("Server-Sent Events: 100, one by one, and a reader that leaves", follows, "events", b"data: event ")
    suite.attempt("a chunked response that pauses: the same", follows, "pausing", b"part ")


def sockets(suite, bench):
    uri = "ws://web/ws"

    def connect(port=bench.port, **more):
        return websockets.connect(uri, host="127.0.0.1", port=port, max_size=64 * MiB,
                                  open_timeout=PATIENCE, close_timeout=PATIENCE, proxy=None, **more)

    async def echoes(port=bench.port):
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
        response = await asyncio.to_thread(requests.get, f"{bench.egress}/gone/ws", headers={"Host": "web"}, timeout=PATIENCE)
        expect("the server", response.text, "gone")

    async def many():
        async def one(i):
            async with connect() as ws:
                for j in range(20):
                    await ws.send(f"{i} {j}")
                    expect("echo", await ws.recv(), f"{i} {j}")
        await asyncio.gather(*(one(i) for i in range(200)))

    async def refused():
        try:
            async with websockets.connect("ws://web/nowhere", host="127.0.0.1", port=bench.port, open_timeout=PATIENCE, proxy=None):
                raise AssertionError("connected")
        except websockets.InvalidStatus as e:
            expect("status", e.response.status_code in (403, 404), True)

    def attempt(name, function, *args):
        suite.attempt(name, lambda: asyncio.run(asyncio.wait_for(function(*args), PATIENCE)))

    attempt("WebSocket: echoes of 0 bytes to 16 MiB, ping, 10,000 messages", echoes)
    attempt("WebSocket: the server closes with its code", closes)
    attempt("WebSocket: a client that vanishes", vanishes)
    attempt("WebSocket: 200 at a time", many)
    attempt("WebSocket: one that the server refuses", refused)
    attempt("WebSocket through tcp listeners", echoes, bench.raw)


def connect(suite, bench):
    def tunnels(host, want):
        got = run(f"curl -s --proxytunnel -x {bench.egress} -X POST http://{host}:80/acknowledge/x/1 "
                    "-w ' %{http_connect}' || true")
        expect("response, and status of the CONNECT", got, want)

    suite.attempt("curl: CONNECT", tunnels, "web", "ok 200")
    suite.attempt("curl: CONNECT that no route names: served as HTTP", tunnels, "bulk", "404 page not found\n 200")


def beside(suite, bench):
    """Small requests through the sidecars, while streams of RATE bytes a second go each
    way past them, and through them.

    The cost of streams past the sidecars is the machine's part: generator, curl and
    servers share its processors with the sidecars. With root's rights, requests that
    were due while a processor stood still are left out.
    """
    steal = ["--steal"] if os.geteuid() == 0 else []

    def small():
        r = load(f"{bench.egress}/small", *steal, "--method", "GET", "--rate", "500", "--connections", "16", "--duration", "3s",
                 "--max-connections", "256", "--warmup", "500ms", "--timeout", f"{PATIENCE}s")
        counted = r.pop("undisturbed", r)
        counted["left"] = 100 * counted["requests"] / r["requests"]
        return r | counted

    def streams(base):
        up = f"{tool('bulk')} bytes {100 * GiB} {RATE} | curl -sS -T - {base}/sum"
        down = f"curl -sS -o /dev/null '{base}/bytes/{100 * GiB}?rate={RATE}'"
        return [subprocess.Popen(["bash", "-c", "exec 2>/dev/null; " + c], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, start_new_session=True) for c in (up, down)]

    states = {"alone": None, "streams past": f"http://127.0.0.1:{bench.bulk_port}", "streams through": bench.egress}
    results = {state: [] for state in states}
    for _ in range(ROUNDS):
        for state, base in states.items():
            running = streams(base) if base else []
            try:
                results[state].append(small())
            finally:
                suite.check("the streams last", all(p.poll() is None for p in running))
                for p in running:
                    os.killpg(p.pid, 9)
                    p.wait()
    rows, alone = [(f"medians of {ROUNDS}", "P50 ms", "P99 ms", "max ms", "left %", "P99 / alone")], median(results["alone"], "p99_ms")
    for state, runs in results.items():
        row = [median(runs, key) for key in ("p50_ms", "p99_ms", "max_ms", "left")]
        rows.append((state, *(f"{v:.2f}" for v in (*row, row[1] / alone))))
        suite.check(f"small requests, {state}: no errors", all(r["errors"] == 0 for r in runs),
                    str([r["error_kinds"] for r in runs]))
    table(*rows)


def median(runs, key):
    return sorted(r[key] for r in runs)[len(runs) // 2]


def left(suite, bench, before):
    """Nothing is left of any stream."""
    for p, sockets in zip(bench.sidecars, before):
        try:
            wait_for("sockets", lambda: p.sockets() <= sockets, PATIENCE)
        except Timeout:
            pass
        suite.check(f"{p.name}: sockets are back", p.sockets() <= sockets, f"{sockets} before, {p.sockets()} after")


def main():
    suite = Suite()
    bench = Bench(suite)
    requests.get(f"{bench.egress}/small", timeout=PATIENCE)
    before = [p.sockets() + 8 for p in bench.sidecars]  # links and pooled connections that stay
    for name, part in (("Server-Sent Events", paced), ("WebSocket", sockets), ("CONNECT", connect),
                       ("small requests beside streams", beside)):
        title(name)
        part(suite, bench)
    title("bulk")
    bulk(suite, bench, int(sys.argv[1]))
    title("afterwards")
    left(suite, bench, before)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
