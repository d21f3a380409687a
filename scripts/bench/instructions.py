"""Counts the instructions of a request's way through the core and the codecs, on a
driver without sockets. See scripts/cost.sh.

It counts with callgrind alone. Hardware counters ("perf stat -e instructions:u")
are missing on most virtual machines, and would count otherwise: what a processor
does by microcode is one instruction to it, and which of its routines Go takes
hangs on its features. Callgrind emulates the same processor everywhere."""

import concurrent.futures
import os
import re
import subprocess

from harness import die_with_parent
from processes import Failed

# The requests of a run and of a longer one: what start and end take is the same
# for both, and so is not in the difference.
REQUESTS = 1920
PATIENCE = 900

# No collector, no preemption, one thread: what is left of chance is the seeds of
# the hash tables, less than 1%.
SETTLED = {"GOGC": "off", "GOMAXPROCS": "1", "GODEBUG": "asyncpreemptoff=1"}

# How far a count may be from the one in the list.
SLACK = 0.05


def run(binary, shape, requests):
    """The instructions of a process that sends so many requests of a shape."""
    pattern = "/".join(f"^{re.escape(part)}$" for part in shape.split("/"))
    cmd = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", binary, "-test.run=^$",
           f"-test.bench=^BenchmarkShape$/{pattern}", f"-test.benchtime={requests}x"]
    try:
        done = subprocess.run(cmd, capture_output=True, text=True, timeout=PATIENCE, env=os.environ | SETTLED,
                              preexec_fn=die_with_parent)
    except subprocess.TimeoutExpired as e:
        raise Failed(f"{' '.join(cmd)}: not done within {PATIENCE} s") from e
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not counted or f"BenchmarkShape/{shape}" not in done.stdout:
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
