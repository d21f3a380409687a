"""Processes, ports and counted checks for the suites that run real processes.

Everything started here is a child of the suite, is stopped by its own process
id when the suite ends for whatever reason, and is killed by the kernel if the
suite itself is killed.
"""

import atexit
import ctypes
import os
import platform
import signal
import socket
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1

# Seconds for what must happen, on a machine that does much else; nothing is
# measured with it.
PATIENCE = 120
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """For a child, before it runs its program."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def exit_on_signals():
    """Has what ends the suite raise SystemExit, once: what follows must not disturb the cleaning up."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def leave(number, _):
        for s in signals:
            signal.signal(s, signal.SIG_IGN)
        sys.exit(128 + number)

    for s in signals:
        signal.signal(s, leave)


class Timeout(Exception):
    """What was waited for did not happen in time."""


def wait_for(what, seconds, condition):
    """Returns condition()'s first true value; raises Timeout after seconds."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Timeout(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def free_ports(n):
    """n ports of 127.0.0.1 that nobody listened on a moment ago.

    They lie below the range from which the kernel takes the ports of outgoing
    connections, so that none of the suite's own connections takes one while its
    server is being restarted.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        low = int(f.read().split()[0])
    ports, candidate = [], 10_000 + os.getpid() * 37 % 8_000
    while len(ports) < n:
        candidate += 1
        if candidate >= min(low, 65_000):
            raise RuntimeError("no free port")
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", candidate))
            except OSError:
                continue
        ports.append(candidate)
    return ports


def kernel():
    """Its version, without what a distribution adds."""
    return platform.release().split("-")[0]


def listens(port):
    """Tells whether something accepts connections on a port of 127.0.0.1."""
    with socket.socket() as s:
        s.settimeout(5)
        return s.connect_ex(("127.0.0.1", port)) == 0


def report_of(argv):
    """Starts a program, for its report on standard output."""
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=die_with_parent)


class Process:
    """A child process that can be killed and started again."""

    def __init__(self, name, argv, log, port=None, env=None, cwd=None):
        self.name, self.argv, self.log, self.port = name, argv, log, port
        self.env = {**os.environ, **(env or {})}
        self.cwd, self.child = cwd, None
        self.life = None  # of the time since it was ready; None: it is not yet, or is being ended from here

    def start(self, wait=PATIENCE):
        """Starts it, and waits until it listens on its port if it has one."""
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env=self.env, cwd=self.cwd, preexec_fn=die_with_parent)
        if self.port:
            wait_for(f"{self.name} to listen on {self.port}", wait,
                     lambda: self.ended() or listens(self.port))
        if self.ended():
            raise RuntimeError(f"{self.name} ended at once; its log ends:\n{self.tail()}")
        self.life = object()
        return self

    def ended(self):
        return self.child.poll() is not None

    def kill(self):
        """kill -9."""
        self.life = None
        self.child.kill()
        self.child.wait()

    def stop(self):
        """SIGTERM, and SIGKILL for what does not heed it."""
        if self.child is None or self.ended():
            return
        self.life = None
        self.child.terminate()
        try:
            self.child.wait(8)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self, n=2000):
        with open(self.log, "rb") as f:
            return f.read()[-n:].decode(errors="replace")

    def rss(self):
        """Resident memory in KiB."""
        return self._memory("VmRSS:")

    def peak(self):
        """The most resident memory since its start or forget_peak, in KiB."""
        return self._memory("VmHWM:")

    def forget_peak(self):
        with open(f"/proc/{self.child.pid}/clear_refs", "w", encoding="ascii") as f:
            f.write("5")

    def _memory(self, field):
        with open(f"/proc/{self.child.pid}/status", encoding="ascii") as f:
            for line in f:
                if line.startswith(field):
                    return int(line.split()[1])
        return 0

    def fds(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))


class Suite:
    """The processes and the counted checks of one suite."""

    def __init__(self, directory):
        self.dir, self.processes = directory, []
        self.passed, self.failures = 0, []
        atexit.register(self.stop)
        exit_on_signals()

    def process(self, name, argv, port=None, env=None, cwd=None):
        log = os.path.join(self.dir, name + ".log")
        p = Process(name, argv, log, port, env, cwd)
        self.processes.append(p)
        return p

    def file(self, name, text):
        """Writes a file, and returns its path."""
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def sidecar(self, name, remora, text, port, admin=None):
        """A sidecar with this configuration; p.admin is where its admin API is, if it has one."""
        p = self.process(name, [remora, "run", "-c", self.file(name + ".yaml", text)], port)
        p.admin = f"http://127.0.0.1:{admin}" if admin else None
        return p

    def stop(self):
        """Stops all, the latest first."""
        for p in reversed(self.processes):
            p.stop()
        self.processes.clear()

    def check(self, name, good, detail=""):
        """Counts a check; says so when it failed."""
        if good:
            self.passed += 1
            print(f"ok    {name}", flush=True)
        else:
            self.failures.append(name)
            print(f"FAIL  {name}  {detail}", flush=True)
        return good

    def attempt(self, name, function, *args):
        """Counts a check that fails by raising."""
        try:
            function(*args)
        except Exception as e:  # pylint: disable=broad-except
            return self.check(name, False, f"{type(e).__name__}: {e}")
        return self.check(name, True)

    def finish(self):
        """Stops all, prints the counts and returns the exit code."""
        self.stop()
        if self.failures:
            print("\nfailed:\n  " + "\n  ".join(self.failures))
        print(f"\n{self.passed} passed, {len(self.failures)} failed", flush=True)
        return 1 if self.failures else 0


def certificates(directory, name):
    """A key, a certificate of that name, and the authority that signed it (itself), as
    a tls block."""
    cert, key = os.path.join(directory, "cert.pem"), os.path.join(directory, "key.pem")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
         "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-keyout", key, "-out", cert],
        capture_output=True, text=True, timeout=PATIENCE)
    if made.returncode:
        raise RuntimeError(f"openssl: {made.stderr}")
    return f"{{cert: {cert}, key: {key}, ca: {cert}, peers: [{name}]}}"
