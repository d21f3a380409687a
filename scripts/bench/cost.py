"""Counts what a request costs in steady state: instructions in the core, system calls
and allocations of each sidecar. See scripts/cost.sh."""

import argparse
import collections
import concurrent.futures
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import instructions
from stack import PATIENCE, Failed, Stack, Tools, wrk

CHAINS = [["single"], ["consumer", "provider"]]
CONNECTIONS = [64, 1]
SECONDS = 4

# The process allocates by itself, above all for a look at its metrics: a few
# thousand more or less each time. A run that counts allocations lasts until that
# is little for a request, but not for ever on a slow machine.
ENOUGH = 50_000
MOST_SECONDS = 60

# What disturbs a machine only adds to a count, so one that is too high is
# measured again: a cost that has risen is too high each time.
TRIES = 3

# What the Go runtime's monitor calls with time, however many requests there are.
OF_TIME = ["nanosleep"]

# System calls that have no limit, of fewer than this per request, come with the
# opening of connections.
NOISE = 0.1


class Strace:
    """Counts the system calls of all threads of a process; a context manager."""

    def __init__(self, pid, file):
        self.pid, self.file = pid, file

    def __enter__(self):
        cmd = ["strace", "-f", "-c", "-U", "name,calls", "-p", str(self.pid), "-o", self.file]
        self.proc = subprocess.Popen(cmd, stderr=subprocess.PIPE, text=True)
        line = self.proc.stderr.readline()
        if "attached" not in line:
            raise Failed(f"{' '.join(cmd)}: {line}{self.proc.stderr.read()}")
        return self

    def __exit__(self, *_):
        self.proc.send_signal(signal.SIGINT)  # it detaches and writes its counts
        self.proc.communicate(timeout=PATIENCE)

    def counts(self):
        with open(self.file) as f:
            rows = re.findall(r"^ *(\w+) +(\d+) *$", f.read(), re.M)
        return {name: int(n) for name, n in rows if name not in ("total", *OF_TIME)}


def count_syscalls(tools, chain, connections):
    """Of each sidecar, system calls per request by name."""
    with Stack(tools, chain) as stack, contextlib.ExitStack() as tracing:
        wrk(stack.url, connections, 1)
        traces = [Strace(p.pid, os.path.join(stack.dir.name, f"{n}.strace")) for n, p in zip(chain, stack.proxies)]
        for t in traces:
            tracing.enter_context(t)
        r = load(stack, connections)
        tracing.close()
        return {n: {name: k / r["requests"] for name, k in t.counts().items()} for n, t in zip(chain, traces)}


def load(stack, connections, seconds=SECONDS):
    r = wrk(stack.url, connections, seconds)
    stack.alive()
    if r["errors"]:
        raise Failed(f"{r['errors']} requests failed")
    return r


def metrics(port):
    """A sidecar's /metrics, labels summed up."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as f:
                text = f.read().decode()
            break
        except OSError as e:  # its loop was kept from answering
            if time.monotonic() > end:
                raise Failed(f"/metrics: {e}") from e
    found = collections.Counter()
    for m in re.finditer(r"^(\w+)(?:\{.*\})? (\S+)$", text, re.M):
        found[m[1]] += float(m[2])
    return found


REQUESTS = "remora_requests_total"
ALLOCATIONS = "go_memstats_mallocs_total"
FLUSHES = "remora_link_flushes_total"


def count_allocations(tools, chain, connections):
    """Of each sidecar, allocations per request and, where it has a link, per flush of
    it, between two moments well within a run, so that opening connections does not
    count."""
    with Stack(tools, chain) as stack, concurrent.futures.ThreadPoolExecutor() as pool:
        asking = [cost_of_asking(port) for port in stack.admin]
        rate = load(stack, connections, 1)["requests"]
        seconds = min(max(SECONDS, ENOUGH / rate), MOST_SECONDS)
        running = pool.submit(load, stack, connections, round(seconds) + 2)
        time.sleep(1)
        before = [metrics(port) for port in stack.admin]
        time.sleep(seconds)
        after = [metrics(port) for port in stack.admin]
        running.result()
    found = {}
    for i, name in enumerate(chain):
        d = {k: after[i][k] - before[i][k] for k in (REQUESTS, ALLOCATIONS, FLUSHES)}
        n = max(0, d[ALLOCATIONS] - asking[i])
        found[name] = {"allocations": n / d[REQUESTS]}
        if d[FLUSHES]:
            found[name]["allocations/flush"] = n / d[FLUSHES]
    return found


def cost_of_asking(port):
    """The most that one look at /metrics allocates, which is as much as thousands
    of requests do."""
    seen = [metrics(port)[ALLOCATIONS] for _ in range(6)]
    return max(b - a for a, b in zip(seen, seen[1:]))


def read_limits(file):
    """{(sidecar, connections): {what: limit}} and {shape: instructions}"""
    limits, shapes = collections.defaultdict(dict), {}
    with open(file) as f:
        for number, line in enumerate(f, 1):
            if not (line := line.split("#")[0].strip()):
                continue
            try:
                if line.startswith("core "):
                    _, shape, n = line.split()
                    shapes[shape] = float(n)
                    continue
                sidecar, connections, what, most = line.split()
                limits[sidecar, int(connections)][what] = float(most)
            except ValueError:
                raise Failed(f"{file}:{number}: want SIDECAR CONNECTIONS WHAT MOST, or core SHAPE INSTRUCTIONS")
    return limits, shapes


def compare(counts, limits):
    """Prints one table; returns what rose."""
    risen = [f"{what} (no longer measured)" for what in limits if what not in counts]
    for what, n in sorted(counts.items(), key=lambda c: -c[1]):
        most = limits.get(what)
        if most is None and n < NOISE:
            continue
        bad = n > (most if most is not None else NOISE)
        print(f"  {what:20} {n:8.3f}  {'at most ' + format(most, 'g') if most is not None else 'not in the list'}"
              + ("  RISEN" if bad else ""))
        if bad:
            risen.append(what)
    return risen


def measure(tools, chain, connections, limits):
    """Counts and compares once; returns what rose."""
    calls = count_syscalls(tools, chain, connections)
    allocations = count_allocations(tools, chain, connections)
    risen = []
    for sidecar in chain:
        print(f"{sidecar}, {connections} connection{'s' * (connections > 1)}, per request")
        counts = {**calls[sidecar], "total": sum(calls[sidecar].values()), **allocations[sidecar]}
        risen += [f"{sidecar} {connections} {w}" for w in compare(counts, limits[sidecar, connections])]
    return risen


def main():
    a = argparse.ArgumentParser(prog="scripts/cost.sh", description=__doc__)
    a.add_argument("--binaries", required=True, help=argparse.SUPPRESS)
    a.add_argument("--core", required=True, help=argparse.SUPPRESS)
    a.add_argument("--limits", required=True, help=argparse.SUPPRESS)
    o = a.parse_args()
    limits, shapes = read_limits(o.limits)
    tools = Tools(o.binaries)
    began = time.monotonic()
    risen = instructions.compare(instructions.count(o.core, shapes), shapes)
    for chain, connections in itertools.product(CHAINS, CONNECTIONS):
        for _ in range(TRIES):
            if not (high := measure(tools, chain, connections, limits)):
                break
        risen += high
    print(f"{time.monotonic() - began:.0f} s")
    if risen:
        raise Failed("risen: " + ", ".join(risen) + f"; if that is meant, change {o.limits}")


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        sys.exit(f"cost: {e}")
