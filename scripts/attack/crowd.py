"""Connections that behave badly, many at a time, driven from one thread."""

import socket
import time


def connect(port, receive_buffer=None):
    """A connection to a port of 127.0.0.1, not blocking once it is open."""
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(2)
    try:
        s.connect(("127.0.0.1", port))
    except OSError:
        s.close()
        raise
    s.setblocking(False)
    return s


class Member:
    """One of a crowd: a connection that comes back when it is closed."""

    def __init__(self, port, first, then, reads):
        self.port, self.first, self.then, self.reads = port, first, then, reads
        self.socket, self.left = None, b""

    def turn(self):
        """Says what the kernel takes now; hears what there is."""
        try:
            if self.socket is None:
                self.socket = connect(self.port, None if self.reads else 4096)
                self.left = memoryview(self.first)
            elif not self.left:
                self.left = memoryview(self.then)
            self.send()
            self.hear()
        except OSError:
            self.close()

    def send(self):
        try:
            while self.left:
                self.left = self.left[self.socket.send(self.left):]
        except BlockingIOError:
            pass

    def hear(self):
        """A member that does not read still looks whether it is closed."""
        try:
            while True:
                if not self.socket.recv(1 << 16 if self.reads else 1, 0 if self.reads else socket.MSG_PEEK):
                    raise ConnectionResetError
                if not self.reads:
                    return
        except BlockingIOError:
            pass

    def close(self):
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def crowd(port, end, size, first, then=b"", pause=0.05, reads=True):
    """Until end, size connections say first once and then again and again."""
    members = [Member(port, first, then, reads) for _ in range(size)]
    try:
        while time.monotonic() < end:
            for m in members:
                m.turn()
                if time.monotonic() >= end:
                    break
            time.sleep(pause)
    finally:
        for m in members:
            m.close()
