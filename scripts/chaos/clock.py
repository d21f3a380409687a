"""Steps the wall clock of one running process.

A Go program gets the time from the kernel's vDSO, which is mapped into it. LD_PRELOAD
does not reach it, and time namespaces have no CLOCK_REALTIME. So the beginning of the
vDSO's clock_gettime, in the process's own copy of the page, is overwritten by a system
call that adds to CLOCK_REALTIME. CLOCK_MONOTONIC stays as it is, as it does when an
administrator or NTP sets the clock of a machine.
"""

import contextlib
import os
import platform
import signal
import struct

from harness.process import Failed, wait_for

SYMBOL = b"__vdso_clock_gettime"
SHT_DYNSYM = 11


def _code(seconds):
    """clock_gettime(edi, *rsi), for x86-64."""
    return (b"\xb8\xe4\x00\x00\x00"  # mov eax, 228
            b"\x0f\x05"              # syscall
            b"\x85\xff"              # test edi, edi
            b"\x75\x07"              # jne to the ret: not CLOCK_REALTIME
            + b"\x48\x81\x06" + struct.pack("<i", seconds)  # add qword [rsi], seconds
            + b"\xc3")               # ret


@contextlib.contextmanager
def stopped(pid):
    """Stops a process that nothing else stops meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Clock:
    """The wall clock of a process. paused is a context in which the process is stopped, and may be of others, too."""

    def __init__(self, pid, paused):
        if platform.machine() != "x86_64":
            raise Failed(f"no way is known to step a process's clock on {platform.machine()}")
        self.pid, self.paused = pid, paused
        with open(f"/proc/{pid}/maps", encoding="ascii") as f:
            start, end = next(line.split()[0].split("-") for line in f if "[vdso]" in line)
        self.base, self.size = int(start, 16), int(end, 16) - int(start, 16)
        self.at = self.base + _address(self._read(self.base, self.size))
        self.original = self._read(self.at, len(_code(0)))

    def step(self, seconds):
        """Sets the clock so many seconds ahead of the true time; 0 makes it right again."""
        code = _code(seconds) if seconds else self.original
        wait_for("the threads to leave clock_gettime", lambda: self._patch(code))

    def _read(self, address, n):
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as f:
            f.seek(address)
            return f.read(n)

    def _patch(self, code):
        """Reports whether it has written: not while a thread is in the code."""
        with self.paused():
            wait_for("the process to stop", lambda: all(c is not None for c in self._counters()))
            if any(self.at <= c < self.at + len(code) for c in self._counters()):
                return False
            with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as f:
                f.seek(self.at)
                f.write(code)
            return True

    def _counters(self):
        """The program counters of all threads; None for one that runs."""
        counters = []
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{task}/syscall", encoding="ascii") as f:
                words = f.read().split()
            counters.append(None if words[0] == "running" else int(words[-1], 16))
        return counters


def _address(image):
    """Where clock_gettime is in an image of the vDSO (ELF, 64 bits)."""
    (sections,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, sections + i * size) for i in range(count)]
    for _, kind, _, _, offset, length, link, _, _, entry in headers:
        if kind != SHT_DYNSYM:
            continue
        strings = headers[link][4]
        for symbol in range(offset, offset + length, entry):
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", image, symbol)
            if image[strings + name:].startswith(SYMBOL + b"\0"):
                return value
    raise Failed("the vDSO has no clock_gettime")
