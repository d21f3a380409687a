"""Network namespaces, for suites that need networks of their own. Needs root and
iproute2."""

import contextlib
import ctypes
import os
import re
import shutil

from harness.process import run

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def ip(*argv, check=True):
    return run(["ip", *argv], check)


def sweep():
    """Removes the namespaces of suites that were killed, and their files in /etc/netns."""
    for line in ip("netns", "list").stdout.splitlines():
        name = line.split()[0]
        owner = re.fullmatch(r"remora-.*-(\d+)", name)
        if owner and not os.path.exists(f"/proc/{owner[1]}"):
            ip("netns", "del", name, check=False)
            shutil.rmtree(os.path.join("/etc/netns", name), ignore_errors=True)


def enter(name):
    """Moves the calling thread into a namespace."""
    fd = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(fd)
    finally:
        os.close(fd)


def _setns(fd):
    if _libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Space:
    """A network namespace, named after what it is for and this process."""

    def __init__(self, purpose):
        self.name = f"remora-{purpose}-{os.getpid()}"

    def make(self):
        ip("netns", "add", self.name)
        self.ip("link", "set", "lo", "up")

    def remove(self):
        """Removes it, if it exists, with the devices in it."""
        ip("netns", "del", self.name, check=False)

    def ip(self, *argv):
        return ip("-n", self.name, *argv)

    def argv(self, *argv):
        """The command line that runs argv inside."""
        return ["ip", "netns", "exec", self.name, *argv]

    def execute(self, *argv, **more):
        return run(self.argv(*argv), **more)

    @contextlib.contextmanager
    def inside(self):
        """The sockets that this thread opens meanwhile belong to the namespace."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter(self.name)
            yield
        finally:
            _setns(home)
            os.close(home)
