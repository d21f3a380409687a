"""What clients do to an HTTP listener. Each attack takes the port and when to end."""

import os

from crowd import crowd

MESSAGE = 1 << 20   # limits.message
CONNECTIONS = 1000  # limits.connections
HEADER = 64 << 10   # limits.header
BUFFERED = int(os.environ.get("BUFFERED", "32"))  # limits.buffered, MiB


def post(path, size, body=b"", fields=b""):
    return b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n%s" % (path, size, fields, body)


def slow_heads(port, end):
    crowd(port, end, 300, b"GET / HTTP/1.1\r\nHost: a\r\na: ", b"x", pause=0.2)


def slow_bodies(port, end):
    crowd(port, end, 300, post(b"/compute", 100_000), b"x", pause=0.2)


def idle(port, end):
    crowd(port, end, CONNECTIONS + 200, b"", pause=0.2)


def half_heads(port, end):
    """Little from each, much from all."""
    crowd(port, end, CONNECTIONS - 100, b"GET / HTTP/1.1\r\nHost: a\r\na: " + b"x" * (HEADER - 1000), pause=0.2)


def huge_heads(port, end):
    """As many and as long fields as there may be, and more of both."""
    fits = post(b"/compute", 0, fields=b"".join(b"a%d: %s\r\n" % (i, b"x" * 500) for i in range(120)))
    crowd(port, end, 20, fits * 4 + post(b"/compute", 0, fields=b"a: b\r\n" * 10_000))


def half_bodies(port, end):
    """Bodies that lack their last byte, and more of them than limits.buffered."""
    crowd(port, end, min(3 * BUFFERED, CONNECTIONS - 100), post(b"/compute", MESSAGE, bytes(MESSAGE - 1)), pause=0.2)


def many_half_bodies(port, end):
    """The same in small pieces, each below the share of a connection."""
    crowd(port, end, CONNECTIONS - 100, post(b"/compute", MESSAGE, bytes(1250 * BUFFERED)), b"x", pause=0.2)


def tiny_chunks(port, end):
    chunk = b"1;a=bcdefgh;i=\"jkl\"\r\nx\r\n"
    crowd(port, end, 20, b"POST /compute HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", chunk * 1000, pause=0.01)


def pipelines(port, end):
    """More requests at once than may wait."""
    crowd(port, end, 20, b"GET /compute HTTP/1.1\r\nHost: a\r\n\r\n" * 200)


def unread_answers(port, end):
    """Large answers, each connection with more of them than its kernel takes."""
    crowd(port, end, 60, post(b"/echo", MESSAGE, bytes(MESSAGE)) * 12, reads=False)


ATTACKS = {
    "slow heads": (slow_heads, "header-timeout"),
    "slow bodies": (slow_bodies, "body-timeout"),
    "connections past the limit": (idle, "connections refused"),
    "half heads": (half_heads, "connections shed"),
    "huge heads": (huge_heads, "too-many-headers"),
    "half bodies": (half_bodies, "overloaded"),
    "many half bodies": (many_half_bodies, "overloaded"),
    "endless tiny chunks": (tiny_chunks, "chunk-overhead"),
    "pipelines": (pipelines, "too-many-pipelined"),
    "unread answers": (unread_answers, "overloaded"),
}
