"""A cable between two network namespaces that loses, delays and reorders, and may be narrow.

    wire.py SPACE DEVICE SPACE DEVICE CONTROL

For kernels without sch_netem. It makes a TAP device in each namespace and carries
Ethernet frames from either to the other; TCP is the kernel's. A client of the socket
CONTROL sends a line of JSON, {"loss": percent, "delay": ms, "jitter": ms, "reorder":
percent, "rate": kbit/s}, and gets "ok" once it holds, for each of both directions. As
with netem, a delay is even within +-jitter and so may reorder, and "reorder" is the
share of frames without a delay.
"""

import fcntl
import heapq
import itertools
import json
import os
import random
import select
import socket
import struct
import sys
import time

from harness.spaces import enter

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
MAX_FRAME = 65535
MAX_WAITING = 10_000  # delayed frames at a time; more are lost


def tap(space, name):
    enter(space)
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def put(fd, frame):
    try:
        os.write(fd, frame)
    except OSError:
        pass  # the device is down or its queue full: lost


class Wire:
    def __init__(self, a, b):
        self.other = {a: b, b: a}
        self.loss = self.delay = self.jitter = self.reorder = self.rate = 0
        self.free = {a: 0, b: 0}  # when the last frame that came from there will have gone
        self.waiting, self.order = [], itertools.count()  # (due, order, fd, frame)

    def set(self, loss=0, delay=0, jitter=0, reorder=0, rate=0):
        self.loss, self.reorder, self.rate = loss / 100, reorder / 100, rate * 1000
        self.delay, self.jitter = delay / 1000, jitter / 1000

    def carry(self, fd):
        """Takes the frames that have arrived at fd."""
        while True:
            try:
                frame = os.read(fd, MAX_FRAME)
            except OSError:  # none left, or the device is down
                return
            if self.loss and random.random() < self.loss:
                continue
            now = time.monotonic()
            due = self.sent(fd, len(frame), now)
            if self.delay and random.random() >= self.reorder:
                due += self.delay + random.uniform(-self.jitter, self.jitter)
            if due <= now:
                put(self.other[fd], frame)
            elif len(self.waiting) < MAX_WAITING:
                heapq.heappush(self.waiting, (due, next(self.order), self.other[fd], frame))

    def sent(self, fd, size, now):
        """When a frame from fd has gone, behind those before it."""
        if not self.rate:
            return now
        self.free[fd] = max(now, self.free[fd]) + size * 8 / self.rate
        return self.free[fd]

    def deliver(self):
        """Sends the due frames. Returns the milliseconds until the next one is due, None if there is none."""
        while self.waiting:
            left = self.waiting[0][0] - time.monotonic()
            if left > 0:
                return left * 1000
            _, _, fd, frame = heapq.heappop(self.waiting)
            put(fd, frame)
        return None


def obey(control, wire):
    client, _ = control.accept()
    with client, client.makefile("rw") as lines:
        wire.set(**json.loads(lines.readline()))
        lines.write("ok\n")


def main():
    space_a, name_a, space_b, name_b, path = sys.argv[1:]
    ends = tap(space_a, name_a), tap(space_b, name_b)
    wire = Wire(*ends)
    control = socket.socket(socket.AF_UNIX)
    control.bind(path)
    control.listen()
    poll = select.poll()
    for fd in (*ends, control.fileno()):
        poll.register(fd, select.POLLIN)
    while True:
        for fd, _ in poll.poll(wire.deliver()):
            if fd == control.fileno():
                obey(control, wire)
            else:
                wire.carry(fd)


if __name__ == "__main__":
    main()
