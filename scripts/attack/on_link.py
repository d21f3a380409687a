"""What a peer does to a link listener, and to a sidecar that has dialled it."""

import os
import socket
import threading
import time

import wire
from crowd import connect, crowd
from on_http import MESSAGE, post

HELLO = wire.preface(1)


def garbage(port, end):
    crowd(port, end, 50, os.urandom(4096), os.urandom(4096))


def garbage_frames(port, end):
    crowd(port, end, 50, HELLO + os.urandom(4096), os.urandom(4096))


def preface_only(port, end):
    crowd(port, end, 300, HELLO, pause=0.2)


def half_frames(port, end):
    """A frame that takes for ever."""
    whole = wire.frame(wire.REQUEST, 1, bytes(wire.FRAME))
    crowd(port, end, 300, HELLO + whole[:20], b"x", pause=0.2)


def half_messages(port, end):
    """As many messages as may be in reassembly, none of which ends."""
    head = wire.request_head(b"/compute")
    first = wire.varint(MESSAGE) + head + bytes(wire.FRAME - len(head) - 10)
    crowd(port, end, 4, HELLO + b"".join(wire.frame(wire.REQUEST | wire.MORE, i, first) for i in range(1, 4096)))


def defines(port, end):
    """More names than the table holds, and the longest ones."""
    names = [wire.frame(wire.DEFINE, i, b"%d" % i + b"x" * 60) for i in range(200)]
    crowd(port, end, 50, HELLO + b"".join(names))


def pings(port, end):
    crowd(port, end, 10, HELLO, wire.frame(wire.PING, 7) * 20_000, pause=0.01, reads=False)


def cancels(port, end):
    """Requests that are withdrawn at once, by a peer that reads nothing."""
    crowd(port, end, 10, HELLO + b"".join(
        wire.request(i, b"/compute") + wire.frame(wire.CANCEL, i) for i in range(1, 20_000)), reads=False)


def unknown_cancels(port, end):
    crowd(port, end, 10, HELLO, wire.frame(wire.CANCEL, 7) * 20_000, pause=0.01, reads=False)


class Requester:
    """A link that asks for long answers, says that it lives, and gives no CREDIT for them."""

    def __init__(self, port):
        self.socket = connect(port)
        self.socket.settimeout(2)
        self.heard, self.credit = bytearray(), wire.WINDOW
        self.socket.sendall(wire.preface(1, window=16384))

    def ask(self, stream, size):
        self.socket.sendall(wire.long_request(stream, b"/echo", size))
        while size > 0:
            n = min(size, wire.FRAME)
            while self.credit < n:
                self.hear()
            self.socket.sendall(wire.frame(wire.DATA, stream, bytes(n)))
            self.credit, size = self.credit - n, size - n

    def hear(self):
        b = self.socket.recv(1 << 16)
        if not b:
            raise ConnectionResetError
        self.heard += b
        for kind, stream, payload in wire.frames(self.heard):
            if kind == wire.CREDIT:
                self.credit += wire.read_varint(payload, 0)[0]
            elif kind == wire.PING:
                self.socket.sendall(wire.frame(wire.PING + 1, stream))


def no_credit(port, end):
    def one():
        while time.monotonic() < end:
            try:
                link = Requester(port)
                for i in range(1, 500):
                    link.ask(i, 60_000)
                    if time.monotonic() > end:
                        break
                while time.monotonic() < end:
                    link.hear()
            except OSError:
                time.sleep(0.05)
            finally:
                link.socket.close()

    threads = [threading.Thread(target=one) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


class Acceptor:
    """The other end of links that a sidecar dials: it says what it is given, and reads or not."""

    def __init__(self, port, first, then=b"", reads=True):
        self.first, self.then, self.reads, self.end = first, then, reads, False
        self.listener = socket.create_server(("127.0.0.1", port))
        self.listener.settimeout(0.1)
        self.thread = threading.Thread(target=self.serve)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.end = True
        self.thread.join()
        self.listener.close()

    def serve(self):
        links = []
        while not self.end:
            try:
                s = self.listener.accept()[0]
                s.setblocking(False)
                links.append(s)
                s.send(self.first)
            except OSError:
                pass
            for s in links:
                self.turn(s)
        for s in links:
            s.close()

    def turn(self, s):
        try:
            if self.then:
                s.send(self.then)
            while self.reads and s.recv(1 << 16):
                pass
        except OSError:
            pass


def dialled(port, end, evil, *acts, **how):
    """Clients send large bodies for the service whose sidecar is an Acceptor."""
    with Acceptor(evil, *acts, **how):
        crowd(port, end, 60, post(b"/evil", 900_000, bytes(900_000)), pause=0.1)


ANSWER = wire.preface(2, window=16384)

# On the provider's link listener: the port, and when to end.
ON_ACCEPTOR = {
    "garbage": garbage,
    "garbage for frames": garbage_frames,
    "prefaces only": preface_only,
    "half frames": half_frames,
    "half messages": half_messages,
    "answers without credit": no_credit,
    "floods of DEFINE": defines,
    "floods of PING": pings,
    "rapid resets": cancels,
    "floods of CANCEL": unknown_cancels,
}

# By what the consumer's sidecar has dialled.
ON_DIALER = {
    "dialled: silence": (b"",),
    "dialled: garbage": (os.urandom(4096), os.urandom(4096)),
    "dialled: no credit": (ANSWER,),
    "dialled: floods of PING": (ANSWER, wire.frame(wire.PING, 7) * 5000),
    "dialled: answers without end": (
        ANSWER, b"".join(wire.frame(wire.RESPONSE | wire.MORE, i, wire.varint(MESSAGE) + b"\x05\0\0\xc8\x01\0" + bytes(8000))
                         for i in range(1, 50))),
}
