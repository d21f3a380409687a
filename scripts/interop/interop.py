"""Remora between programs that are not its own.

First what docs/getting-started.md starts: etcd, three servers (Python's and
Node's), a provider sidecar and a consumer sidecar; curl, requests, Java's
HttpClient and wrk call through them. Then the same with a provider sidecar
beside each server.

    interop.py BIN DIR      BIN holds remora and remora-lab, DIR takes the logs
"""

import os
import re
import subprocess
import sys
import time

import with_requests
from guide import Guide
from harness import PATIENCE, Suite, free_ports, wait_for
from with_requests import LIMIT, expect

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def title(text):
    print(f"\n== {text}", flush=True)


def run(argv, seconds=PATIENCE, env=None, **more):
    clean = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False,
                          env={**clean, **(env or {})}, **more)


def guide(suite, binaries):
    page = Guide(suite, ROOT, binaries)
    page.start()
    port = page.ports[15001]
    wait_for("the consumer to reach the servers", PATIENCE, lambda: reaches(port))
    for command, promised, came in page.tries():
        suite.check("guide: " + command.splitlines()[0][:70], came == promised, f"{came!r}, want {promised!r}")
    return page, port


def reaches(port):
    ran = run(["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", f"http://127.0.0.1:{port}/healthz"])
    return ran.stdout == b"200"


def curl(suite, port):
    body = os.path.join(suite.dir, "body")
    url = f"http://127.0.0.1:{port}"

    def echo(size, *options, at=url, env=None):
        data = os.urandom(size)
        with open(body, "wb") as f:
            f.write(data)
        ran = run(["curl", "-sS", "-m", str(PATIENCE), "-D", body + ".head", "-o", body + ".back",
                   "-w", "%{http_code} %{num_connects}", "-H", "x-nonce: curl-1", "-H", "Content-Type: a/b",
                   *options, at], env=env)
        status = ran.stdout.decode().split(" ")[0]
        expect("status, " + ran.stderr.decode(), status, "200")
        head = with_file(body + ".head")
        expect("body", with_file(body + ".back") == data, True)
        expect("x-nonce", re.findall(rb"(?im)^x-nonce: (.*)\r$", head), [b"curl-1"])
        return head

    def continues():
        head = echo(LIMIT, "--expect100-timeout", "15", "-H", "Expect: 100-continue", "--data-binary", "@" + body,
                    at=url + "/echo")
        expect("100 Continue", head.startswith(b"HTTP/1.1 100"), True)

    def head():
        ran = run(["curl", "-sSI", "-m", str(PATIENCE), url + "/size/1234"])
        expect("content-length", re.findall(rb"(?im)^content-length: (.*)\r$", ran.stdout), [b"1234"])

    def keeps_alive():
        ran = run(["curl", "-sS", "-m", str(PATIENCE), "-w", "%{num_connects}\n", *["-o", os.devnull, url + "/size/9"] * 5])
        expect("connections", ran.stdout.split(), [b"1", b"0", b"0", b"0", b"0"])

    for size in (0, 1, 300, 100_000, LIMIT, LIMIT + 1):
        up = ["--data-binary", "@" + body]
        suite.attempt(f"curl: {size} bytes", lambda: echo(size, *up, at=url + "/echo"))
        suite.attempt(f"curl: {size} bytes, chunked",
                      lambda: echo(size, "-H", "Transfer-Encoding: chunked", *up, at=url + "/echo?chunked"))
        suite.attempt(f"curl: {size} bytes, http_proxy",
                      lambda: echo(size, *up, at="http://compute/echo", env={"http_proxy": url}))
        suite.attempt(f"curl: {size} bytes, HTTP/1.0", lambda: echo(size, "-0", *up, at=url + "/echo"))
        suite.attempt(f"curl: {size} bytes, PUT", lambda: echo(size, "-T", body, at=url + "/echo"))
    suite.attempt("curl: Expect: 100-continue before 4 MiB", continues)
    suite.attempt("curl: HEAD", head)
    suite.attempt("curl: keep-alive", keeps_alive)


def with_file(name):
    with open(name, "rb") as f:
        return f.read()


def java(suite, port):
    ran = run(["java", "-Xshare:auto", os.path.join(HERE, "Client.java"), str(port)], 5 * PATIENCE)
    lines = ran.stdout.decode().splitlines()
    for line in lines:
        verdict, _, rest = line.partition(" ")
        suite.check(rest, verdict == "ok")
    suite.check("Java: ran to its end", ran.returncode == 0 and len(lines) > 30, ran.stderr.decode()[-1000:])


def wrk(suite, port, connections, connection):
    ran = run(["wrk", "-t", "2", "-c", str(connections), "-d", "4s", "--timeout", f"{PATIENCE}s",
               "-s", os.path.join(HERE, "nonce.lua"), f"http://127.0.0.1:{port}/echo", "--", connection])
    counts = dict(re.findall(r"(\w+)=(\d+)", ran.stdout.decode()))
    name = f"wrk: {connections} connections, {connection}, {counts.get('answers', 'no')} answers, all right"
    answers = int(counts.pop("answers", 0))
    suite.check(name, answers > 50 and set(counts.values()) == {"0"}, f"{counts} {ran.stderr.decode()}")


PROVIDER = """
node: {{id: provider-{n}}}
admin: {{address: "127.0.0.1:{admin}"}}
registry: {{etcd: {{endpoints: ["127.0.0.1:{etcd}"]}}}}
listeners: [{{name: ingress, address: "127.0.0.1:{link}", protocol: link, service: local}}]
services: {{local: {{discover: static, endpoints: ["127.0.0.1:{server}"], protocol: http, connect_timeout: 10s}}}}
register: [{{service: wide, listener: ingress, advertise: "127.0.0.1:{link}"}}]
"""

CONSUMER = """
node: {{id: consumer-wide}}
admin: {{address: "127.0.0.1:{admin}"}}
registry: {{etcd: {{endpoints: ["127.0.0.1:{etcd}"]}}}}
listeners: [{{name: egress, address: "127.0.0.1:{listen}", protocol: http}}]
routes: [{{service: wide}}]
services: {{wide: {{discover: etcd, protocol: link, connect_timeout: 10s}}}}
"""


def three_providers(suite, page, binaries):
    """A provider sidecar beside each of the guide's servers, and a consumer of its own."""
    def sidecar(name, text, port):
        suite.sidecar(name, os.path.join(binaries, "remora"), text, port).start()

    etcd, servers = page.ports[2379], [page.ports[p] for p in (8081, 8082, 8083)]
    ports = free_ports(8)
    for n, server in enumerate(servers):
        sidecar(f"wide-{n + 1}", PROVIDER.format(n=n + 1, admin=ports[n], etcd=etcd, link=ports[n + 3], server=server),
                ports[n + 3])
    listen = ports[6]
    sidecar("wide-consumer", CONSUMER.format(admin=ports[7], etcd=etcd, listen=listen), listen)
    want = {f"127.0.0.1:{server}" for server in servers}
    wait_for("the consumer to reach a server", PATIENCE, lambda: reaches(listen))
    suite.attempt("all three servers answer", lambda: wait_for(
        "all three", PATIENCE, lambda: with_requests.served_by(listen, 50) == want))
    return listen


def main():
    suite = Suite(sys.argv[2])
    binaries = sys.argv[1]
    began = time.monotonic()

    title("docs/getting-started.md")
    page, port = guide(suite, binaries)
    everything(suite, port)
    title("three provider sidecars, one consumer sidecar")
    everything(suite, three_providers(suite, page, binaries))

    print(f"\n{time.monotonic() - began:.0f} s")
    return suite.finish()


def everything(suite, port):
    curl(suite, port)
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
