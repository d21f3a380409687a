"""Calls that want no answer, between a consumer and a provider that see each frame: those of Java overlook what
should not be there."""

import socket
import struct

from harness import PATIENCE
from mesh import Sidecar

MAGIC, REQUEST, TWO_WAY, HESSIAN2, OK = 0xDABB, 0x80, 0x40, 2, 20
HEADER = struct.Struct(">HBBqi")


def frame(flags, status, number, body):
    return HEADER.pack(MAGIC, flags | HESSIAN2, status, number, len(body)) + body


def call(number, flags):
    texts = ("2.0.2", "dev.remora.lab.Sampler", "0.0.0", "note", "Ljava/lang/String;", f"call {number}")
    return frame(REQUEST | flags, 0, number, b"".join(bytes([len(t)]) + t.encode() for t in texts) + b"HZ")


def read(stream):
    """The flags, id and body of the next frame."""
    _, flags, _, number, length = HEADER.unpack(stream.read(HEADER.size))
    return flags, number, stream.read(length)


def one_way(suite, binaries):
    """A call that wants no answer reaches its provider as such. Its caller gets none, though the provider gives one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        sidecar = Sidecar(suite, binaries, "sidecar-one-way")
        sidecar.service("byhand", [server.getsockname()[1]], "dubbo")
        port = sidecar.listener("dubbo", "byhand")
        sidecar.start()
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as consumer, consumer.makefile("rb") as answers:
            consumer.sendall(call(1, 0) + call(2, TWO_WAY))
            provider, _ = server.accept()
            provider.settimeout(PATIENCE)
            with provider, provider.makefile("rb") as calls:
                got = {}
                for _ in range(2):
                    flags, number, body = read(calls)
                    got["call 1" if b"call 1" in body else "call 2"] = flags & TWO_WAY
                    provider.sendall(frame(0, OK, number, b"\x92"))
                suite.check("one-way: the provider gets it as it is", got == {"call 1": 0, "call 2": TWO_WAY}, str(got))
                _, number, _ = read(answers)
                suite.check("one-way: the first answer is that to the other call", number == 2, f"to {number}")
