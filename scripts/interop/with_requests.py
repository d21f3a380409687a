"""Python requests through the sidecars."""

import hashlib
import itertools
import json
import os
import random

import requests

from harness.process import PATIENCE
from harness.suite import expect

MiB = 1 << 20
LIMIT = 4 * MiB  # limits.message, by default
SIZES = [0, 1, 300, 16_383, 16_384, 16_385, 65_536, 262_145, MiB, LIMIT - 1, LIMIT]


def in_pieces(data):
    """The body as a generator, which requests sends in chunks."""
    for i in range(0, len(data), 50_000):
        yield data[i:i + 50_000]


class Caller:
    """One way to call the service: directly at the sidecar, or with the sidecar as a proxy."""

    def __init__(self, port, proxy, keep_alive=True):
        self.base = "http://compute" if proxy else f"http://127.0.0.1:{port}"
        self.session = requests.Session()
        self.session.trust_env = False
        if proxy:
            self.session.proxies = {"http": f"http://127.0.0.1:{port}"}
        if not keep_alive:
            self.session.headers["connection"] = "close"

    def call(self, method, path, body=None, **headers):
        nonce = os.urandom(8).hex()
        r = self.session.request(method, self.base + path, data=body, timeout=PATIENCE,
                                 headers={"x-nonce": nonce, **headers})
        expect("x-nonce", r.headers.get("x-nonce"), nonce)
        return r

    def echo(self, size, chunked_up, how):
        body = random.randbytes(size)
        r = self.call("POST", "/echo" + how, in_pieces(body) if chunked_up else body,
                      **{"content-type": "application/x-test"})
        expect("status", r.status_code, 200)
        expect("content-type", r.headers["content-type"], "application/x-test")
        expect("SHA-256", hashlib.sha256(r.content).hexdigest(), hashlib.sha256(body).hexdigest())


def bodies(suite, port):
    for proxy, keep_alive in itertools.product((False, True), (True, False)):
        caller = Caller(port, proxy, keep_alive)
        name = f"requests: {'http_proxy' if proxy else 'direct'}, {'keep-alive' if keep_alive else 'close'}"
        for up, how in itertools.product((False, True), ("", "?chunked", "?close")):
            for size in SIZES:
                suite.attempt(f"{name}, {'chunked' if up else 'length'} up, {how[1:] or 'length'} down, {size} bytes",
                              caller.echo, size, up, how)


def past_the_limit(suite, port):
    caller = Caller(port, False)

    def request(chunked):
        body = os.urandom(LIMIT + 1)
        r = caller.session.post(caller.base + "/echo", data=in_pieces(body) if chunked else body, timeout=PATIENCE)
        expect("status", r.status_code, 200)
        expect("body", r.content == body, True)
        expect("connection", r.headers.get("connection"), "close")

    def response(size, connection):
        r = caller.session.get(f"{caller.base}/size/{size}", timeout=PATIENCE)
        expect("status", r.status_code, 200)
        expect("length", len(r.content), size)
        expect("connection", r.headers.get("connection"), connection)

    suite.attempt("requests: one byte past the limit up is a stream", request, False)
    suite.attempt("requests: one byte past the limit up in chunks is a stream", request, True)
    suite.attempt("requests: one byte past the limit down is a stream", response, LIMIT + 1, "close")
    suite.attempt("requests: the limit itself down is a message, and the connection stays", response, LIMIT, None)


def statuses(suite, port):
    caller = Caller(port, False)

    def status(method, code):
        r = caller.call(method, f"/status/{code}")
        expect("status", r.status_code, code)
        expect("x-remora-error", r.headers.get("x-remora-error"), None)
        empty = method == "HEAD" or code in (204, 304)
        expect("body", r.content, b"" if empty else b"status %d\n" % code)
        if method == "HEAD" and code not in (204, 304):
            expect("content-length", r.headers.get("content-length"), str(len(f"status {code}\n")))

    caller.session.max_redirects = 0
    for code in (200, 201, 204, 206, 301, 304, 400, 401, 404, 418, 429, 500, 503):
        for method in ("GET", "HEAD"):
            suite.attempt(f"requests: {method} with a response of {code}", status, method, code)
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        def same(m=method):
            seen = json.loads(caller.call(m, "/request?a=1&b=%20", b"x" if m in ("POST", "PUT", "PATCH") else None).content)
            expect("method", seen["method"], m)
            expect("target", seen["target"], "/request?a=1&b=%20")
        suite.attempt(f"requests: {method} arrives as it is", same)


def headers(suite, port):
    caller = Caller(port, False)

    def arrives():
        sent = {"X-Case": "Kept", "x-empty": "", "x-long": "v" * 8000, "Accept": "a/b;q=0.5", "Cookie": "k=v; l=w",
                "x-latin": "caf\xe9"}
        own = {"X-Remora-Idempotent": "1", "x-remora-made-up": "?"}
        seen = json.loads(caller.call("GET", "/request", **sent, **own).content)["headers"]
        for name, value in sent.items():
            expect(name, [v for n, v in seen if n == name], [value])
        names = [n.lower() for n, _ in seen]
        expect("Host", [v for n, v in seen if n.lower() == "host"], [f"127.0.0.1:{port}"])
        for hop in ("connection", "keep-alive", "transfer-encoding", "proxy-connection"):
            expect(hop, [v for n, v in seen if n.lower() == hop and v.lower() != "keep-alive"], [])
        expect("names of Remora's own", [n for n in names if n.startswith("x-remora-")], [])

    def comes_back():
        r = caller.call("GET", "/size/3")
        expect("set-cookie", r.raw.headers.getlist("set-cookie"), ["a=1", "b=2"])
        expect("x-served-by", bool(r.headers["x-served-by"]), True)

    suite.attempt("requests: header fields arrive unchanged", arrives)
    suite.attempt("requests: two field lines of one name come back", comes_back)


def served_by(port, n):
    """The servers of n responses."""
    caller = Caller(port, False)
    return {caller.call("GET", "/size/10").headers["x-served-by"] for _ in range(n)}
