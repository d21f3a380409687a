"""As much of the link protocol (docs/link-protocol.md) as it takes to abuse it."""

REQUEST, RESPONSE, DATA, CREDIT, CANCEL, PING, DEFINE = 1, 2, 3, 4, 5, 8, 11
MORE = 0x20
WINDOW = 131072  # what a sidecar takes without having given CREDIT
FRAME = 16000    # a payload that fits a frame


def varint(n):
    out = bytearray()
    while n > 0x7f:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_varint(b, at):
    """(value, where it ends); IndexError if it is not whole."""
    value = shift = 0
    while True:
        byte = b[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def preface(role, window=WINDOW):
    settings = varint(16384) + varint(window) + varint(4096) + varint(0)
    return b"\x8dRML" + bytes((role, 1, 1, len(settings))) + settings


def frame(kind, stream, payload=b""):
    return bytes((kind,)) + varint(stream) + varint(len(payload)) + payload


def text(s):
    return varint(2 * len(s)) + s


def request_head(path, seconds=5):
    """The head of a POST, with its length in front of it."""
    head = b"\0\0\0" + varint(seconds * 1_000_000) + b"".join(map(text, (b"local", b"POST", path, b"local"))) + varint(0)
    return varint(len(head)) + head


def request(stream, path, seconds=5):
    """A whole request in one frame."""
    return frame(REQUEST, stream, request_head(path, seconds))


def long_request(stream, path, size, seconds=5):
    """The first frame of a request of which size bytes of body are to follow."""
    head = request_head(path, seconds)
    return frame(REQUEST | MORE, stream, varint(len(head) + size) + head)


def frames(b):
    """Yields (type, stream, payload) of the whole frames in b, and takes them out of it."""
    while True:
        try:
            stream, at = read_varint(b, 1)
            length, at = read_varint(b, at)
        except IndexError:
            return
        if len(b) < at + length:
            return
        yield b[0] & 0x1f, stream, bytes(b[at:at + length])
        del b[:at + length]
