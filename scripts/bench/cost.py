"""Counts the cost of a request in steady state: instructions in the core, system calls
and allocations of each sidecar. See scripts/cost.sh.

    cost.py LIMITS              of the sidecars, and of the core
    cost.py LIMITS --profile    saved in the core by cmd/remora/default.pgo

BIN holds test binaries of ./proxy: core, or without and with, for the profile.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import re
import signal
import subprocess
import sys
import time

import instructions

from harness.load import chain, wrk
from harness.process import PATIENCE, Failed, die_with_parent, tool
from harness.suite import Suite

CHAINS = [["single"], ["consumer", "provider"]]
CONNECTIONS = [64, 1]
SECONDS = 4

# The process allocates by itself, above all for its metrics: a few thousand more or
# less each time. A run that counts allocations lasts until that is little for each
# request, but not longer than a bound on a slow machine.
ENOUGH = 50_000
MOST_SECONDS = 60

# A disturbance of the machine only adds to a count, so a count that is too high is
# measured again: a cost that has risen is too high each time.
TRIES = 3

# The calls of the Go runtime's monitor, which grow with time and not with requests.
OF_TIME = ["nanosleep"]

# Fewer system calls per request than this, of those without a limit, belong to the
# opening of connections.
NOISE = 0.1

# Below this share it is time for a new profile. A new one saves about 7%.
LEAST_SAVED = 0.02


@contextlib.contextmanager
def strace(p, file):
    """Counts the system calls of all threads of a process, into a file."""
    cmd = ["strace", "-f", "-c", "-U", "name,calls", "-p", str(p.child.pid), "-o", file]
    with subprocess.Popen(cmd, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as tracer:
        line = tracer.stderr.readline()
        if "attached" not in line:
            raise Failed(f"{' '.join(cmd)}: {line}{tracer.stderr.read()}")
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGINT)  # it detaches and writes its counts
            tracer.communicate(timeout=PATIENCE)


def traced(file):
    with open(file) as f:
        rows = re.findall(r"^ *(\w+) +(\d+) *$", f.read(), re.M)
    return {name: int(n) for name, n in rows if name not in ("total", *OF_TIME)}


def count_syscalls(suite, names, connections):
    """Of each sidecar, system calls per request by name."""
    files = [suite.path(f"{name}.strace") for name in names]
    with chain(suite, names) as (sidecars, url):
        wrk(url, connections, 1)
        with contextlib.ExitStack() as tracing:
            for p, file in zip(sidecars, files):
                tracing.enter_context(strace(p, file))
            r = load(url, connections)
    return {name: {call: n / r["requests"] for call, n in traced(file).items()} for name, file in zip(names, files)}


def load(url, connections, seconds=SECONDS):
    r = wrk(url, connections, seconds)
    if r["errors"]:
        raise Failed(f"{r['errors']} requests failed")
    return r


def totals(sidecar):
    """A sidecar's metrics, each the sum over its labels."""
    found = collections.Counter()
    for m in re.finditer(r"^(\w+)(?:\{.*\})? (\S+)$", sidecar.get("/metrics"), re.M):
        found[m[1]] += float(m[2])
    return found


REQUESTS = "remora_requests_total"
ALLOCATIONS = "go_memstats_mallocs_total"
FLUSHES = "remora_link_flushes_total"


def count_allocations(suite, names, connections):
    """Of each sidecar, allocations per request and, where it has a link, per flush of the
    link. Both are counted between two moments well within a run, so that the opening of
    connections does not count."""
    with chain(suite, names) as (sidecars, url), concurrent.futures.ThreadPoolExecutor() as pool:
        asking = [cost_of_asking(p) for p in sidecars]
        rate = load(url, connections, 1)["requests"]
        seconds = min(max(SECONDS, ENOUGH / rate), MOST_SECONDS)
        running = pool.submit(load, url, connections, round(seconds) + 2)
        time.sleep(1)
        before = [totals(p) for p in sidecars]
        time.sleep(seconds)
        after = [totals(p) for p in sidecars]
        running.result()
    found = {}
    for i, name in enumerate(names):
        d = {k: after[i][k] - before[i][k] for k in (REQUESTS, ALLOCATIONS, FLUSHES)}
        n = max(0, d[ALLOCATIONS] - asking[i])
        found[name] = {"allocations": n / d[REQUESTS]}
        if d[FLUSHES]:
            found[name]["allocations/flush"] = n / d[FLUSHES]
    return found


def cost_of_asking(sidecar):
    """The most that one request for /metrics allocates, which is as much as thousands of
    requests do."""
    seen = [totals(sidecar)[ALLOCATIONS] for _ in range(6)]
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


def measure(suite, names, connections, limits):
    """Counts and compares once; returns what rose."""
    calls = count_syscalls(suite, names, connections)
    allocations = count_allocations(suite, names, connections)
    risen = []
    for sidecar in names:
        print(f"{sidecar}, {connections} connection{'s' * (connections > 1)}, per request")
        counts = {**calls[sidecar], "total": sum(calls[sidecar].values()), **allocations[sidecar]}
        risen += [f"{sidecar} {connections} {w}" for w in compare(counts, limits[sidecar, connections])]
    return risen


def check_costs(limits, shapes):
    suite = Suite()
    began = time.monotonic()
    risen = instructions.compare(instructions.count(tool("core"), shapes), shapes)
    for names, connections in itertools.product(CHAINS, CONNECTIONS):
        for _ in range(TRIES):
            if not (high := measure(suite, names, connections, limits)):
                break
        risen += high
    print(f"{time.monotonic() - began:.0f} s")
    return f"cost: risen: {', '.join(risen)}; if that is meant, change {sys.argv[1]}" if risen else 0


def check_profile(shapes):
    saved = instructions.compare_profile(*(instructions.count(tool(name), shapes) for name in ("without", "with")))
    return f"pgo: the profile saves {saved:.1%}: make a new one with scripts/pgo.sh" if saved < LEAST_SAVED else 0


def main():
    limits, shapes = read_limits(sys.argv[1])
    return check_profile(shapes) if sys.argv[2:] == ["--profile"] else check_costs(limits, shapes)


if __name__ == "__main__":
    sys.exit(main())
