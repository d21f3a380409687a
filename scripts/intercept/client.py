"""A program that knows nothing of Remora: client.py SUFFIX CALLS

It calls the hosts compute, other, store, lines and greeter, each with the suffix,
and prints "ok NAME" or "FAIL NAME DETAIL" for each check.
"""

import http.client
import socket
import sys

SIZE = 3 << 20
suffix, calls = sys.argv[1], int(sys.argv[2])


def check(name, function):
    try:
        function()
        print("ok", name)
    except Exception as e:  # pylint: disable=broad-except
        print("FAIL", name, repr(e))


def expect(got, want):
    if got != want:
        raise AssertionError(f"{got!r}, want {want!r}")


def get(connection):
    connection.request("GET", "/work")
    response = connection.getresponse()
    body = response.read().decode()
    expect(response.status, 200)
    return body


def compute():
    connection = http.client.HTTPConnection("compute" + suffix, 8080, timeout=60)
    for _ in range(calls):
        expect(get(connection)[:8], "replica ")


def other():
    connection = http.client.HTTPConnection("other" + suffix, 8081, timeout=60)
    for _ in range(2):
        head = get(connection).lower()
        expect([name for name in ("cdn-loop:", "x-request-id:", "x-forwarded-for:") if name in head], [])


def connect(host, port):
    return socket.create_connection((host + suffix, port), timeout=60)


def store():
    with connect("store", 6379) as s, s.makefile("rb") as responses:
        key = "python" + suffix
        for command, want in (("PING", b"+PONG\r\n"), (f"SET {key} 1", b"+OK\r\n"), (f"INCR {key}", b":2\r\n")):
            s.sendall(command.encode() + b"\r\n")
            expect(responses.readline(), want)


def half_close():
    with connect("lines", 7001) as s, s.makefile("rb") as responses:
        s.sendall(b"hello\r\n")
        expect(responses.readline(), b"+hello\r\n")
        s.sendall(b"x" * SIZE)
        s.shutdown(socket.SHUT_WR)
        expect(responses.read(), b":%d\r\n" % (SIZE + 7))


def half_close_at_once():
    with connect("lines", 7001) as s, s.makefile("rb") as responses:
        s.sendall(b"GET")  # it may still become a request, and does not
        s.shutdown(socket.SHUT_WR)
        expect(responses.read(), b":3\r\n")


def greeter():
    with connect("greeter", 7002) as s, s.makefile("rb") as responses:
        expect(responses.readline(), b"220 ready\r\n")
        s.sendall(b"EHLO me\r\n")
        expect(responses.readline(), b"250 EHLO me\r\n")


for name, function in (("HTTP to a service", compute), ("HTTP to an unknown host", other), ("Redis", store),
                       ("half-close", half_close), ("half-close at once", half_close_at_once),
                       ("a server that speaks first", greeter)):
    check(name, function)
