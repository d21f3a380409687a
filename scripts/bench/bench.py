"""Measures what the sidecar costs, beside other proxies. See scripts/bench.sh."""

import argparse
import json
import os
import statistics
import sys
import time

import dubbo
from harness import kernel
from stack import Failed, Stack, Tools, cpu, open_loop, which, wrk

# Chains of proxies between wrk and the replica, by the name of their row.
CHAINS = {
    "direct": [],
    "relay-1": ["relay"],
    "relay-2": ["relay", "relay"],
    "haproxy-1": ["haproxy"],
    "haproxy-2": ["haproxy", "haproxy"],
    "remora-1": ["remora"],
    "remora-2": ["consumer", "provider"],
    "remora-2-tls": ["consumer-tls", "provider-tls"],
    "remora-2-observed": ["consumer-observed", "provider-observed"],
}

# The row that is no chain: see dubbo.py.
DUBBO = "dubbo"

# The loads of each row, after a warm-up: how each is named in the report, and the
# function that runs it on a Stack.
WARM_UP = 1
OPEN_RATE = 2000
LOADS = [
    ("1 connection, closed loop", lambda s: wrk(s.url, 1, 2)),
    ("64 connections, closed loop", lambda s: wrk(s.url, 64, 3)),
    ("512 connections, closed loop", lambda s: wrk(s.url, 512, 2)),
    (f"open loop, {OPEN_RATE} requests/s", lambda s: open_loop(s.tools.lab, s.url, OPEN_RATE, 3)),
]

COLUMNS = [  # key, title, format, whether less is better
    ("cpu", "CPU µs/request", "{:.1f}", True),
    ("rate", "requests/s", "{:,.0f}", False),
    ("p50", "p50 µs", "{:,.0f}", True),
    ("p99", "p99 µs", "{:,.0f}", True),
    ("p999", "p99.9 µs", "{:,.0f}", True),
]


def measure(stack, load):
    before = cpu(stack.proxies)
    r = load(stack)
    stack.alive()
    used = cpu(stack.proxies) - before
    return {
        "requests": r["requests"],
        "errors": r["errors"],
        "cpu": used / r["requests"] * 1e6 if stack.proxies else None,
        "rate": r["requests"] / r["seconds"],
        **{k: r[k] for k in ("p50", "p99", "p999", "max")},
    }


def run(tools, rows, rounds):
    """Returns a list of samples. The order is turned round every second round, so
    that a machine that changes its mood favours no row."""
    samples = []
    for n in range(1, rounds + 1):
        for row in rows if n % 2 else reversed(rows):
            print(f"round {n} of {rounds}: {row}", file=sys.stderr)
            with Stack(tools, CHAINS[row]) as stack:
                wrk(stack.url, 64, WARM_UP)
                for name, load in LOADS:
                    samples.append({"round": n, "row": row, "load": name, **measure(stack, load)})
    return samples


def spread(values, form):
    """Median [min..max]."""
    values = [v for v in values if v is not None]
    if not values:
        return "-"
    low, middle, high = (form.format(f(values)) for f in (min, statistics.median, max))
    return f"{middle} [{low}..{high}]"


def table(head, body):
    """Lines of text, columns aligned."""
    width = [max(len(r[i]) for r in [head] + body) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(r, width)).rstrip() for r in [head] + body)


def report(samples, rows):
    for name, _ in LOADS:
        mine = [s for s in samples if s["load"] == name]
        body = []
        for row in rows:
            own = [s for s in mine if s["row"] == row]
            body.append([row] + [spread([s[k] for s in own], form) for k, _, form, _ in COLUMNS])
        for one, other in (("remora-2", "relay-2"), ("remora-2", "haproxy-2"), ("remora-2-tls", "remora-2"),
                           ("remora-2-observed", "remora-2")):
            if one in rows and other in rows:
                body.append([f"{one} / {other}"] + ratios(mine, one, other))
        print(f"\n{name}")
        print(table([""] + [c[1] for c in COLUMNS], body))


def ratios(samples, one, other):
    """Of one row to the other, round by round."""
    by = {(s["row"], s["round"]): s for s in samples}
    rounds = sorted({s["round"] for s in samples})
    return [spread([by[one, n][k] / by[other, n][k] for n in rounds], "{:.2f}") for k, *_ in COLUMNS]


def main():
    a = argparse.ArgumentParser(prog="scripts/bench.sh", description=__doc__)
    a.add_argument("rounds", nargs="?", type=int, default=3)
    a.add_argument("--json", metavar="FILE", help="write all samples there too")
    a.add_argument("--rows", help="comma-separated, of: " + " ".join([*CHAINS, DUBBO]))
    a.add_argument("--binaries", required=True, help=argparse.SUPPRESS)
    a.add_argument("--peers", required=True, help=argparse.SUPPRESS)
    o = a.parse_args()
    tools = Tools(o.binaries, o.peers)
    rows = [*CHAINS, DUBBO]
    if o.rows:
        rows = o.rows.split(",")
        if unknown := [r for r in rows if r not in CHAINS and r != DUBBO]:
            a.error(f"unknown rows: {' '.join(unknown)}")
    for name, path, hint in (
        ("relay", tools.relay, f"put a TCP relay into {o.peers}/bin (its arguments: PORT BACKEND-PORT), or set BENCH_DIR"),
        ("haproxy", tools.haproxy, "apt-get install haproxy"),
    ):
        if not path and any(r.startswith(name) for r in rows):
            print(f"without {name}: {hint}", file=sys.stderr)
            rows = [r for r in rows if not r.startswith(name)]

    if not which("openssl"):
        print("without remora-2-tls: apt-get install openssl", file=sys.stderr)
        rows = [r for r in rows if not r.endswith("-tls")]

    began = time.time()
    chains = [r for r in rows if r != DUBBO]
    samples = run(tools, chains, o.rounds)
    calls = dubbo.run(tools, o.rounds) if DUBBO in rows else []
    print(f"Median [min..max] of {o.rounds} rounds.")
    print(f"{os.cpu_count()} CPUs for load, proxies and replica together; one worker per proxy; CPU is that of "
          f"all proxies of a row. Linux {kernel()}, load average {os.getloadavg()[0]:.1f}.")
    if chains:
        print("\nPOST of 300 bytes, answer of 200, keep-alive")
        report(samples, chains)
    if calls:
        dubbo.report(calls, spread, table)
    samples += calls
    errors = {r: n for r in rows if (n := sum(s["errors"] for s in samples if s["row"] == r))}
    if errors:
        print("\nfailed requests:", ", ".join(f"{r} {n}" for r, n in errors.items()))
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"began": began, "cpus": os.cpu_count(), "kernel": kernel(), "samples": samples}, f, indent=1)
    return 1 if any(r == DUBBO or r.startswith("remora") for r in errors) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as e:
        sys.exit(f"bench: {e}")
