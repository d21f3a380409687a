"""Remora between programs that are not its own.

First what docs/getting-started.md starts: etcd, three servers (Python's and
Node's), a provider sidecar and a consumer sidecar; curl, requests, Java's
HttpClient and wrk call through them. Then the same with a provider sidecar
beside each server.
"""

import os
import re
import sys
import time

import with_requests
from guide import Guide
from with_requests import LIMIT

from harness.process import PATIENCE, run, wait_for
from harness.sidecar import Sidecar
from harness.suite import Suite, expect, title

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def call(argv, seconds=PATIENCE, env=None):
    """Runs a client to its end, without a proxy that the environment may name."""
    clean = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return run(argv, False, seconds, env={**clean, **(env or {})})


def curl(*argv, env=None):
    return call(["curl", "-sS", "-m", str(PATIENCE), *argv], env=env)


def guide(suite):
    page = Guide(suite, ROOT)
    page.start()
    port = page.ports[15001]
    wait_for("the consumer to reach the servers", lambda: reaches(port))
    return page, port


def reaches(port):
    return curl("-o", os.devnull, "-w", "%{http_code}", f"http://127.0.0.1:{port}/healthz").stdout == "200"


def with_curl(suite, port):
    body = suite.path("body")
    url = f"http://127.0.0.1:{port}"

    def echo(size, *options, at=url + "/echo", env=None):
        data = os.urandom(size)
        with open(body, "wb") as f:
            f.write(data)
        ran = curl("-D", body + ".head", "-o", body + ".back", "-w", "%{http_code}", "-H", "x-nonce: curl-1",
                   "-H", "Content-Type: a/b", *options, at, env=env)
        expect("status, " + ran.stderr, ran.stdout, "200")
        head = content(body + ".head")
        expect("body", content(body + ".back") == data, True)
        expect("x-nonce", re.findall(rb"(?im)^x-nonce: (.*)\r$", head), [b"curl-1"])
        return head

    up = ["--data-binary", "@" + body]

    def continues():
        head = echo(LIMIT, "--expect100-timeout", "15", "-H", "Expect: 100-continue", *up)
        expect("100 Continue", head.startswith(b"HTTP/1.1 100"), True)

    def head():
        expect("content-length", re.findall(r"(?im)^content-length: (.*)$", curl("-I", url + "/size/1234").stdout), ["1234"])

    def keeps_alive():
        ran = curl("-w", "%{num_connects}\n", *["-o", os.devnull, url + "/size/9"] * 5)
        expect("connections", ran.stdout.split(), ["1", "0", "0", "0", "0"])

    for size in (0, 1, 300, 100_000, LIMIT, LIMIT + 1):
        suite.attempt(f"curl: {size} bytes", lambda: echo(size, *up))
        suite.attempt(f"curl: {size} bytes, chunked",
                      lambda: echo(size, "-H", "Transfer-Encoding: chunked", *up, at=url + "/echo?chunked"))
        suite.attempt(f"curl: {size} bytes, http_proxy",
                      lambda: echo(size, *up, at="http://compute/echo", env={"http_proxy": url}))
        suite.attempt(f"curl: {size} bytes, HTTP/1.0", lambda: echo(size, "-0", *up))
        suite.attempt(f"curl: {size} bytes, PUT", lambda: echo(size, "-T", body))
    suite.attempt("curl: Expect: 100-continue before 4 MiB", continues)
    suite.attempt("curl: HEAD", head)
    suite.attempt("curl: keep-alive", keeps_alive)


def content(name):
    with open(name, "rb") as f:
        return f.read()


def java(suite, port):
    ran = call(["java", "-Xshare:auto", os.path.join(HERE, "Client.java"), str(port)], 5 * PATIENCE)
    lines = ran.stdout.splitlines()
    for line in lines:
        verdict, _, rest = line.partition(" ")
        suite.check(rest, verdict == "ok")
    suite.check("Java: ran to its end", ran.returncode == 0 and len(lines) > 30, ran.stderr[-1000:])


def wrk(suite, port, connections, connection):
    ran = call(["wrk", "-t", "2", "-c", str(connections), "-d", "4s", "--timeout", f"{PATIENCE}s",
                "-s", os.path.join(HERE, "nonce.lua"), f"http://127.0.0.1:{port}/echo", "--", connection])
    counts = dict(re.findall(r"(\w+)=(\d+)", ran.stdout))
    responses = int(counts.pop("responses", 0))
    name = f"wrk: {connections} connections, {connection}, {responses} responses, all right"
    suite.check(name, responses > 50 and set(counts.values()) == {"0"}, f"{counts} {ran.stderr}")


def three_providers(suite, page):
    """Starts a provider sidecar beside each of the guide's servers, and a consumer for them. Returns its port."""
    registry = {"etcd": {"endpoints": [f"127.0.0.1:{page.ports[2379]}"]}}
    servers = [page.ports[p] for p in (8081, 8082, 8083)]
    for n, server in enumerate(servers, 1):
        p = Sidecar(suite, f"wide-{n}", registry=registry)
        p.service("local", "http", server)
        p.register("wide", p.listener("link", "local"))
        p.start()
    p = Sidecar(suite, "wide-consumer", registry=registry, routes=[{"service": "wide"}])
    p.service("wide", "link")
    port = p.listener("http")
    p.start()
    want = {f"127.0.0.1:{server}" for server in servers}
    wait_for("the consumer to reach a server", lambda: reaches(port))
    suite.attempt("all three servers respond", wait_for, "all three", lambda: with_requests.served_by(port, 50) == want)
    return port


def main():
    suite = Suite()
    began = time.monotonic()
    title("docs/getting-started.md")
    page, port = guide(suite)
    everything(suite, port)
    title("three provider sidecars, one consumer sidecar")
    everything(suite, three_providers(suite, page))
    print(f"\n{time.monotonic() - began:.0f} s")
    return suite.finish()


def everything(suite, port):
    with_curl(suite, port)
    with_requests.statuses(suite, port)
    with_requests.headers(suite, port)
    with_requests.bodies(suite, port)
    with_requests.past_the_limit(suite, port)
    java(suite, port)
    wrk(suite, port, 8, "keep-alive")
    wrk(suite, port, 64, "keep-alive")
    wrk(suite, port, 8, "close")


if __name__ == "__main__":
    sys.exit(main())
