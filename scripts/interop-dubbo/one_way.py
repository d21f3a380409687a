"""One-way calls, between a consumer and a provider that see each frame: those of Java
overlook frames that should not be there."""

import socket
import struct

from mesh import add_service, sidecar

from harness.process import PATIENCE

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


def one_way(suite):
    """A one-way call reaches its provider as such. Its caller gets no response, though the provider sends one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        p = sidecar(suite, "sidecar-one-way")
        add_service(p, "byhand", [server.getsockname()[1]], "dubbo")
        port = p.listener("dubbo", "byhand")
        p.start()
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as consumer, consumer.makefile("rb") as responses:
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
                _, number, _ = read(responses)
                suite.check("one-way: the first response is that to the other call", number == 2, f"to {number}")
