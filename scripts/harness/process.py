"""Child processes and their ports.

Each child is stopped by its own process id when the suite ends. The kernel kills it if
the suite itself is killed.
"""

import ctypes
import itertools
import os
import signal
import socket
import subprocess
import sys
import time

# Seconds for anything that must happen, on a busy machine. No result depends on it.
PATIENCE = 120

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """A process did not start, ended, or gave a wrong result."""


class Timeout(Failed):
    """An awaited event did not happen in time."""


def tool(name):
    """The path of a program that this repository builds."""
    return os.path.join(os.environ["BIN"], name)


def die_with_parent():
    """For a child, before it runs its program."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def exit_on_signals():
    """Turns the first signal that ends the suite into SystemExit, and ignores the next ones during the clean-up."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def leave(number, _):
        for s in signals:
            signal.signal(s, signal.SIG_IGN)
        sys.exit(128 + number)

    for s in signals:
        signal.signal(s, leave)


def wait_for(what, condition, seconds=PATIENCE):
    """Returns condition()'s first true value; raises Timeout after seconds."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Timeout(f"{what}: not within {seconds} s")
        time.sleep(0.02)


_candidates = itertools.count(10_000 + os.getpid() * 37 % 8_000)


def free_port():
    """A port of 127.0.0.1 without a listener, another one for each call.

    It lies below the range from which the kernel takes the ports of outgoing connections, so that none of
    them takes it while its server is being restarted.
    """
    for port in itertools.islice(_candidates, 5_000):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Failed("no free port")


def at(port):
    return f"127.0.0.1:{port}"


def listens(port):
    """Reports whether something accepts connections on a port of 127.0.0.1."""
    with socket.socket() as s:
        s.settimeout(5)
        return s.connect_ex(("127.0.0.1", port)) == 0


def run(argv, check=True, seconds=PATIENCE, **more):
    """Runs a program to its end."""
    ran = subprocess.run(argv, **{"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": seconds,
                                  "check": False, "preexec_fn": die_with_parent} | more)
    if check and ran.returncode != 0:
        raise Failed(f"{' '.join(argv)}: exit {ran.returncode}: {ran.stderr[-500:]}")
    return ran


def shell(command, check=True, seconds=600):
    """Runs a pipeline, which fails if a part of it fails."""
    return run(["bash", "-o", "pipefail", "-c", command], check, seconds)


class Process:
    """A child process that can be killed and started again.

    ready is the port that it listens on once it has started, or a function that reports
    whether it has.
    """

    def __init__(self, name, argv, log, ready=None, env=None, cwd=None):
        self.name, self.argv, self.log, self.ready = name, argv, log, ready
        self.env, self.cwd = {**os.environ, **(env or {})}, cwd
        self.child = None
        self.life = None  # an object for the time from being ready to being stopped here

    def start(self):
        """Starts it, and waits until it is ready."""
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env,
                                          cwd=self.cwd, preexec_fn=die_with_parent)
        if self.ready:
            wait_for(f"start of {self.name}", lambda: self.ended() or self.is_ready())
        if self.ended():
            raise Failed(f"{self.name} ended at once; its log ends:\n{self.tail()}")
        self.life = object()
        return self

    def is_ready(self):
        return self.ready() if callable(self.ready) else listens(self.ready)

    def ended(self):
        return self.child.poll() is not None

    def kill(self):
        """kill -9."""
        self.life = None
        self.child.kill()
        self.child.wait()

    def stop(self):
        """SIGTERM, and SIGKILL if the process ignores it. A drain takes its time on a busy machine."""
        if self.child is None or self.ended():
            return
        self.life = None
        self.child.terminate()
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self, n=2000):
        with open(self.log, "rb") as f:
            return f.read()[-n:].decode(errors="replace")

    def rss(self):
        """Resident memory in bytes."""
        return self._memory("VmRSS:")

    def peak(self):
        """The most resident memory since the start or forget_peak, in bytes."""
        return self._memory("VmHWM:")

    def forget_peak(self):
        with open(f"/proc/{self.child.pid}/clear_refs", "w", encoding="ascii") as f:
            f.write("5")

    def _memory(self, field):
        with open(f"/proc/{self.child.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith(field))

    def fds(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def sockets(self):
        """The sockets among the descriptors. The Go runtime keeps pipes of splice until it collects garbage."""
        root, n = f"/proc/{self.child.pid}/fd", 0
        for fd in os.listdir(root):
            try:
                n += os.readlink(f"{root}/{fd}").startswith("socket:")
            except FileNotFoundError:  # closed since
                pass
        return n
