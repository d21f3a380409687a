"""Measures the tail of latency when replicas freeze. See scripts/tail.sh."""

import argparse
import json
import os
import statistics
import sys
import time

from harness import kernel
from mesh import Mesh
from processes import Failed, which

# What is compared: by its name, the title of its line, the way to the replicas and how
# it hedges.
ROWS = {
    "haproxy": ("HAProxy leastconn, 1 hop", "haproxy", None),
    "envoy": ("Envoy least request, 1 hop", "envoy", False),
    "envoy-hedge": ("Envoy least request, hedge after 5 ms, 1 hop", "envoy", True),
    "remora-off": ("Remora, 2 hops, hedging off", "remora", "{mode: off}"),
    "remora": ("Remora, 2 hops, hedging auto", "remora", "{mode: on}"),
    "remora-max2": ("Remora, 2 hops, hedging auto, max 2", "remora", "{mode: on, max: 2}"),
}

COLUMNS = [  # key, title, format
    ("p50_ms", "p50", "{:.2f}"),
    ("p95_ms", "p95", "{:.2f}"),
    ("p99_ms", "p99", "{:.2f}"),
    ("p999_ms", "p99.9", "{:.1f}"),
    ("p9999_ms", "p99.99", "{:.1f}"),
    ("max_ms", "max", "{:.1f}"),
    ("extra", "extra load %", "{:.2f}"),
    ("max_send_lag_ms", "send lag", "{:.1f}"),
]

# One more with --steal.
UNDISTURBED = ("undisturbed", "undisturbed %", "{:.0f}")

# Load before each measurement, for connections and the delay of hedges to settle.
WARM_UP = 2

# The most extra load of an Envoy whose tail is one to compare with, in percent.
FAIR_EXTRA = 5


def measure(mesh, rate, seconds, steal):
    mesh.load(rate, WARM_UP)
    mesh.served()
    mesh.reset()
    before = mesh.hedging()
    r = mesh.load(rate, seconds, *["--steal"] * steal)
    served = mesh.served()
    r["extra"] = 100 * (served - r["requests"]) / r["requests"]
    if steal:
        undisturbed = r.pop("undisturbed")
        r["undisturbed"] = 100 * undisturbed.pop("requests") / r["requests"]
        r.update(undisturbed)
    r["p95_ms"] = next(p["ms"] for p in r["curve"] if p["quantile"] >= 0.95 - 1e-9)
    r["hedging"] = {k: n - before[k] for k, n in mesh.hedging().items()}
    return r


def run(binaries, rows, o):
    """Returns a list of samples. The order is turned round every second round, so that
    a machine that changes its mood favours no row."""
    samples = []
    for n in range(1, o.rounds + 1):
        for row in rows if n % 2 else reversed(rows):
            _, way, hedge = ROWS[row]
            with Mesh(binaries, way, hedge, seed=100 * (o.seed + n)) as mesh:
                r = measure(mesh, o.rate, o.seconds, o.steal)
            samples.append({"round": n, "row": row, **r})
            print(f"round {n} of {o.rounds}: {row}: p99 {r['p99_ms']:.2f} ms, p99.9 {r['p999_ms']:.1f} ms, "
                  f"extra load {r['extra']:.2f}%", file=sys.stderr)
    return samples


class Table:
    """Samples by row and key."""

    def __init__(self, samples):
        self.samples = samples

    def values(self, row, key):
        return [s[key] for s in self.samples if s["row"] == row]

    def median(self, row, key):
        """None for a row that was not measured."""
        values = self.values(row, key)
        return statistics.median(values) if values else None

    def spread(self, row, key, form):
        """Median [min..max]."""
        values = self.values(row, key)
        low, middle, high = (form.format(f(values)) for f in (min, statistics.median, max))
        return f"{middle} [{low}..{high}]"

    def markdown(self, wanted, columns):
        """A line for each row that was asked for."""
        lines = ["| | " + " | ".join(title for _, title, _ in columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for row in wanted:
            cells = [self.spread(row, key, form) if self.values(row, key) else "-" for key, _, form in columns]
            found = "" if self.values(row, "extra") else f": {ROWS[row][1]} not found"
            lines.append(f"| {ROWS[row][0]}{found} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def hedging(self):
        """What hedging did in all rounds together, and what stopped it."""
        lines = []
        for row in ROWS:
            total = {}
            for counts in self.values(row, "hedging"):
                for k, n in counts.items():
                    total[k] = total.get(k, 0) + n
            if total.get("hedges"):
                gates = ", ".join(f"{k} {n}" for k, n in total.items() if n and k not in ("hedges", "won"))
                lines.append(f"{ROWS[row][0]}: {total['hedges']} hedges, {total['won']} won; stopped by: {gates or 'nothing'}")
        return "\n".join(lines)


# What is promised: a name, what is measured of the row, against what, and the most
# that the one may be of the other.
def promises(t):
    envoys = [t.median(r, "p999_ms") for r in ROWS if r.startswith("envoy") and (t.median(r, "extra") or 0) <= FAIR_EXTRA]
    envoy = min((v for v in envoys if v is not None), default=None)
    haproxy = t.median("haproxy", "p99_ms")
    return [
        ("hedging off: p99 / HAProxy's", t.median("remora-off", "p99_ms"), haproxy, 1.15),
        ("hedging auto: p99 / HAProxy's", t.median("remora", "p99_ms"), haproxy, 1.15),
        (f"hedging auto: p99.9 / Envoy's best within {FAIR_EXTRA}% extra load", t.median("remora", "p999_ms"), envoy, 0.7),
        ("hedging auto: extra load, %", t.median("remora", "extra"), 1, 3.6),
        ("hedging auto, max 2: p99.99, ms", t.median("remora-max2", "p9999_ms"), 1, 20),
    ]


def judge(t):
    """Prints whether each promise holds; returns whether none is missed."""
    print("\n| promise, of medians | measured | at most | |\n|---|---|---|---|")
    good = True
    for name, value, base, limit in promises(t):
        if value is None or base is None:
            print(f"| {name} | - | {limit} | not measured |")
            continue
        holds = value / base <= limit
        good = good and holds
        print(f"| {name} | {value / base:.2f} | {limit} | {'holds' if holds else '**misses**'} |")
    return good


def main():
    a = argparse.ArgumentParser(prog="scripts/tail.sh", description=__doc__)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--seconds", type=int, default=30, help="length of each measurement (default 30)")
    a.add_argument("--rate", type=int, default=1000, help="requests per second (default 1000)")
    a.add_argument("--seed", type=int, default=0, help="other freezes (default 0)")
    a.add_argument("--rows", default=",".join(ROWS), help="comma-separated, of: " + " ".join(ROWS))
    a.add_argument("--steal", action="store_true",
                   help="count what was due while none of the machine's processors stood still (see remora-lab load --help)")
    a.add_argument("--json", metavar="FILE", help="write all samples there too")
    a.add_argument("--binaries", required=True, help=argparse.SUPPRESS)
    a.add_argument("--envoy", required=True, help=argparse.SUPPRESS)
    o = a.parse_args()
    wanted = o.rows.split(",")
    if unknown := [r for r in wanted if r not in ROWS]:
        a.error(f"unknown rows: {' '.join(unknown)}")
    if min(o.rounds, o.seconds, o.rate) < 1:
        a.error("rounds, seconds and rate must be positive")
    binaries = {
        "remora": os.path.join(o.binaries, "remora"),
        "remora-lab": os.path.join(o.binaries, "remora-lab"),
        "haproxy": which("haproxy"),
        "envoy": which("envoy") or which(o.envoy),
    }
    rows = [r for r in wanted if binaries[ROWS[r][1]]]
    began = time.time()
    samples = run(binaries, rows, o)
    t = Table(samples)
    print(f"{o.rate} requests/s in an open loop for {o.seconds} s, three replicas with a service time of 1 ms in the median "
          f"(lognormal, sigma 0.5), each frozen for 50 ms every 2 s on average; ms, median [min..max] of {o.rounds} rounds, "
          f"of the same freezes for all.\n{os.cpu_count()} CPUs for load, proxies and replicas together; one worker per proxy. "
          f"Linux {kernel()}, load average {os.getloadavg()[0]:.1f}. Send lag is the most that the load itself was late.\n")
    print(t.markdown(wanted, COLUMNS + [UNDISTURBED] * o.steal))
    good = judge(t)
    if told := t.hedging():
        print("\n" + told)
    if errors := {r: n for r in rows if (n := sum(t.values(r, "errors")))}:
        print("\nfailed requests:", ", ".join(f"{r} {n}" for r, n in errors.items()))
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"began": began, "cpus": os.cpu_count(), "samples": samples}, f, indent=1)
    return 0 if good and not any(r.startswith("remora") for r in errors) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as e:
        sys.exit(f"tail: {e}")
