"""What only a plain socket says: old versions, pipelines, trailers, odd splits."""

import hashlib
import json
import os
import random
import re
import socket

from harness import PATIENCE
from with_requests import LIMIT, expect


class Wire:
    """A connection to the sidecar, spoken byte by byte."""

    def __init__(self, port):
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, *parts):
        for part in parts:
            self.socket.sendall(part if isinstance(part, bytes) else part.replace("\n", "\r\n").encode())

    def response(self, to_head=False):
        """(status, [(name, value)], body, trailers) of the next response."""
        version, status = self.file.readline().split()[:2]
        expect("version", version, b"HTTP/1.1")
        fields, find = self.fields()
        status = int(status)
        if to_head or status < 200 or status in (204, 304):
            return status, fields, b"", []
        if find("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.file.readline(), 16):
                body += self.file.read(size)
                expect("end of a chunk", self.file.readline(), b"\r\n")
            return status, fields, body, self.fields()[0]
        if (length := find("content-length")) is not None:
            return status, fields, self.file.read(int(length)), []
        return status, fields, self.file.read(), []

    def fields(self):
        fields = []
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            fields.append((name.lower(), value.strip()))
        return fields, dict(fields).get

    def ended(self):
        return self.file.read(1) == b""


def echo_on(wire, head, body, status=200):
    wire.send(head, body)
    got, _, echoed, trailers = wire.response()
    expect("status", got, status)
    expect("body", hashlib.sha256(echoed).hexdigest(), hashlib.sha256(body).hexdigest())
    return trailers


def http10(port):
    wire = Wire(port)
    echo_on(wire, "POST /echo HTTP/1.0\nContent-Length: 5\n\n", b"hello")
    expect("closed after the answer", wire.ended(), True)


def http10_gets_no_chunks(port):
    wire = Wire(port)
    wire.send("POST /echo?chunked HTTP/1.0\nHost: compute\nContent-Length: 30000\n\n", b"z" * 30000)
    status, fields, body, _ = wire.response()
    expect("status", status, 200)
    expect("transfer-encoding", dict(fields).get("transfer-encoding"), None)
    expect("body", body, b"z" * 30000)


def http10_keep_alive(port):
    wire = Wire(port)
    for i in range(3):
        echo_on(wire, "POST /echo HTTP/1.0\nHost: compute\nConnection: keep-alive\nContent-Length: 1\n\n", b"%d" % i)


def pipeline(port):
    wire = Wire(port)
    bodies = [os.urandom(random.choice((0, 1, 300, 20_000))) for _ in range(12)]
    wire.send(b"".join(b"POST /echo HTTP/1.1\r\nHost: c\r\nX-Nonce: n%d\r\nContent-Length: %d\r\n\r\n%s" % (i, len(b), b)
                       for i, b in enumerate(bodies)))
    for i, body in enumerate(bodies):
        status, fields, got, _ = wire.response()
        expect(f"answer {i}", (status, dict(fields)["x-nonce"], got), (200, f"n{i}", body))


def pipeline_in_any_splits(port):
    wire = Wire(port)
    data = b"".join(b"POST /echo HTTP/1.1\r\nHost: c\r\nX-Nonce: n%d\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" % i
                    for i in range(8))
    for byte in data:
        wire.send(bytes([byte]))
    for i in range(8):
        status, fields, got, _ = wire.response()
        expect(f"answer {i}", (status, dict(fields)["x-nonce"], got), (200, f"n{i}", b"abc"))


def pipeline_ends_with_close(port):
    wire = Wire(port)
    wire.send("GET /size/3 HTTP/1.1\nHost: c\n\nGET /size/4 HTTP/1.1\nHost: c\nConnection: close\n\n",
              "GET /size/5 HTTP/1.1\nHost: c\n\n")
    expect("first", wire.response()[2], b"xxx")
    expect("second", wire.response()[2], b"xxxx")
    expect("nothing after close", wire.ended(), True)


def trailers_up(port):
    wire = Wire(port)
    wire.send("POST /request HTTP/1.1\nHost: c\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n",
              "4\nabcd\n0\nX-Sum: 17\nX-Other: o\n\n")
    seen = json.loads(wire.response()[2])
    expect("trailers", [[n.lower(), v] for n, v in seen["trailers"]], [["x-sum", "17"], ["x-other", "o"]])
    expect("length of the body", seen["body"], 4)


def trailers_down(port):
    wire = Wire(port)
    body = os.urandom(50_000)
    wire.send("POST /echo?trailers HTTP/1.1\nHost: c\nTE: trailers\nContent-Length: 50000\n\n", body)
    _, _, got, trailers = wire.response()
    expect("body", got, body)
    expect("trailers", trailers, [("x-sha256", hashlib.sha256(body).hexdigest())])


def expect_continue(port):
    wire = Wire(port)
    body = os.urandom(LIMIT)
    wire.send(f"POST /echo HTTP/1.1\nHost: c\nExpect: 100-continue\nContent-Length: {LIMIT}\n\n")
    expect("interim status", wire.response()[0], 100)
    echo_on(wire, b"", body)


def expect_continue_past_the_limit(port):
    wire = Wire(port)
    body = os.urandom(LIMIT + 1)
    wire.send(f"POST /echo HTTP/1.1\nHost: c\nExpect: 100-continue\nContent-Length: {LIMIT + 1}\n\n")
    expect("interim status", wire.response()[0], 100)
    echo_on(wire, b"", body)
    expect("closed", wire.ended(), True)


def absolute_form(port):
    wire = Wire(port)
    wire.send("GET http://compute.example:8080/request?q HTTP/1.1\nHost: other\n\n")
    seen = json.loads(wire.response()[2])
    expect("target", seen["target"], "/request?q")
    expect("Host", [v for n, v in seen["headers"] if n.lower() == "host"], ["compute.example:8080"])


def half_close(port):
    """A client that shuts its sending side has not lost interest, but Remora says it has."""
    wire = Wire(port)
    wire.send("GET /size/10 HTTP/1.1\nHost: c\n\n")
    status = wire.response()[0]
    wire.socket.shutdown(socket.SHUT_WR)
    expect("status", status, 200)
    expect("closed", wire.ended(), True)


def refusals(port):
    """Ambiguous framing is refused, never guessed; the connection is closed."""
    for text, want in (
            ("GET / HTTP/1.1\n\n", 400),
            ("GET / HTTP/1.1\nHost: a\nHost: b\n\n", 400),
            ("POST / HTTP/1.1\nHost: c\nContent-Length: 1\nContent-Length: 2\n\nx", 400),
            ("POST / HTTP/1.1\nHost: c\nContent-Length: 3\nTransfer-Encoding: chunked\n\n0\n\n", 400),
            ("POST / HTTP/1.1\nHost: c\nTransfer-Encoding: gzip\n\n", 501),
            ("GET / HTTP/2.0\nHost: c\n\n", 505),
            ("CONNECT c:443 HTTP/1.1\nHost: c:443\n\n", 404)):
        wire = Wire(port)
        wire.send(text)
        status, fields, _, _ = wire.response()
        expect(repr(text), status, want)
        expect("x-remora-error", bool(re.fullmatch(r"[a-z0-9-]+", dict(fields).get("x-remora-error", ""))), True)
        expect("closed", wire.ended(), True)


CASES = [http10, http10_gets_no_chunks, http10_keep_alive, pipeline, pipeline_in_any_splits, pipeline_ends_with_close,
         trailers_up, trailers_down, expect_continue, expect_continue_past_the_limit, absolute_form, half_close,
         refusals]


def run(suite, port):
    for case in CASES:
        suite.attempt("socket: " + case.__name__.replace("_", " "), case, port)
