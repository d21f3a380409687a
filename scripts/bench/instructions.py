"""Counts the instructions of a request's way through the core and the codecs, on a
driver without sockets. See scripts/cost.sh.

It counts with callgrind alone. Hardware counters ("perf stat -e instructions:u") are
missing on most virtual machines, and would differ: microcode is one instruction to
them, and Go chooses its routines by the processor's features. Callgrind emulates the
same processor everywhere."""

import concurrent.futures
import os
import re
import statistics

from harness.process import Failed, run as run_program

# The requests of a run; a second run has twice as many. Start and end take the same in
# both, so they are not in the difference.
REQUESTS = 1920
PATIENCE = 900

# No collector, no preemption, one thread. The seeds of the hash tables still vary, by
# less than 1%.
SETTLED = {"GOGC": "off", "GOMAXPROCS": "1", "GODEBUG": "asyncpreemptoff=1"}

# How far a count may be from the one in the list.
SLACK = 0.05


def run(binary, shape, requests):
    """The instructions of a process that sends so many requests of a shape."""
    pattern = "/".join(f"^{re.escape(part)}$" for part in shape.split("/"))
    cmd = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", binary, "-test.run=^$",
           f"-test.bench=^BenchmarkShape$/{pattern}", f"-test.benchtime={requests}x"]
    done = run_program(cmd, seconds=PATIENCE, env=os.environ | SETTLED)
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if not counted or f"BenchmarkShape/{shape}" not in done.stdout:
        raise Failed(f"{' '.join(cmd)}: {done.stdout}{done.stderr}")
    return int(counted[1])


def count(binary, shapes):
    """{shape: instructions per request}"""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {s: [pool.submit(run, binary, s, n * REQUESTS) for n in (1, 2)] for s in shapes}
        return {s: (twice.result() - once.result()) / REQUESTS for s, (once, twice) in runs.items()}


def compare(counts, limits):
    """Prints one table; returns what rose."""
    print("core, instructions per request")
    risen = []
    for shape, n in counts.items():
        change = n / limits[shape] - 1
        verdict = "  RISEN" if change > SLACK else "  fallen: lower it in the list" if change < -SLACK else ""
        print(f"  {shape:20} {n:8.0f}  in the list {limits[shape]:8.0f}  {change:+.1%}{verdict}")
        if change > SLACK:
            risen.append(f"instructions of {shape}")
    return risen


def compare_profile(without, with_it):
    """Prints one table; returns the mean share that the profile saves."""
    print("core, instructions per request, without the profile and with it")
    for shape, n in without.items():
        print(f"  {shape:20} {n:8.0f}  {with_it[shape]:8.0f}  {with_it[shape] / n - 1:+.1%}")
    return statistics.mean(1 - with_it[shape] / n for shape, n in without.items())
