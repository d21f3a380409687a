"""Causes faults of networks, machines and disks in a mesh of real processes, and compares
the outcome for the requests with the promises. See scripts/chaos.sh. DIR/disk is a
small file system, which is filled.
"""

import argparse
import os
import platform
import sys
import time

from faults import ANY, FAULTS
from measure import between, failures, most_in_flight, p99, read, recovery
from mesh import Mesh

from harness.process import Timeout
from harness.suite import Suite

# Requests a second, of both kinds.
HEDGED, OTHERS = 200, 100

# Seconds of load before each fault and after it.
LEAD, TAIL = 3, 8

# The same after those of --short that the sidecars route around.
SHORT_TAIL = 4

# Latency is normal again within so many times the P99 before, and at least so many seconds.
NORMAL, FLOOR = 3, 0.025

# The same for --short, in CI: its machine may be busier after the fault than before. Without a way around a
# fault, requests take as long as their deadline.
SHORT_FLOOR = 0.5

# Seconds after which a fault is noticed, even on a machine that stalls itself.
NOTICED = 1

# How much memory may grow under a fault: this many times, and bytes.
GROWTH, ALLOWANCE = 1.5, 16 << 20

# The faults of --short.
SHORT = ("loss-10", "partition", "rst", "kill-provider", "kill-app", "stop-provider", "stop-app", "etcd-leader")

COLUMNS = ("fault", "requests", "failed, idempotent", "failed, others", "well again after, s", "P99 ms: before, during, after",
           "RSS MiB: consumer", "providers", "promised", "")


class Trial:
    """One fault, and its measurements."""

    def __init__(self, mesh, fault, short):
        self.mesh, self.fault, self.broken = mesh, fault, []
        self.tail = SHORT_TAIL if short and fault.around else TAIL
        self.floor = SHORT_FLOOR if short else FLOOR

    def run(self):
        m, f = self.mesh, self.fault
        m.wait_normal()
        self.rss = [p.rss() for p in m.sidecars]
        pids = {name: p.child.pid for name, p in m.processes.items()}
        seconds = LEAD + f.lasts + self.tail
        loads = [m.load(f"{f.name}-hedged", HEDGED, seconds, "--header", "x-remora-idempotent: 1"),
                 m.load(f"{f.name}-others", OTHERS, seconds)]
        time.sleep(LEAD)
        act = f.act(m)
        self.injected = time.time()
        next(act)
        self.begun = time.time()  # a busy machine takes seconds until here
        time.sleep(max(0, self.injected + f.lasts - time.time()))
        next(act)
        self.removed = time.time()
        for _, p in loads:
            if p.child.wait(seconds + 120):
                self.broken.append(f"the load ended with status {p.child.returncode}: {p.tail(300)}")
        self.hedged, self.others = (read(log) for log, _ in loads)
        self.all = sorted(self.hedged + self.others, key=lambda r: r.due)
        self.broken += act
        try:
            m.wait_normal()
        except Timeout as e:
            self.broken.append(str(e))
        self.broken += [f"{name} has ended by itself" for name, p in m.processes.items() if p.ended()]
        self.rss_after = [p.rss() for p in m.sidecars]
        self.kept = [p.child.pid == pids[p.name] for p in m.sidecars]
        self.judge()

    def judge(self):
        f = self.fault
        if early := [r for r in self.all if r.failure and r.due + r.latency < self.injected]:
            self.broken.append(f"{len(early)} requests failed before it")
        for kind, requests, allowed in (("idempotent", self.hedged, f.hedged), ("other", self.others, f.others)):
            # At the other providers: failures while nothing is served make no room for themselves.
            there = most_in_flight([r for r in requests if not r.failure], self.begun + NOTICED)
            for why, n in failures(requests).items():
                if n > (allowed[why] + there if why in allowed else 0):
                    self.broken.append(f"{n} {kind} requests failed: {why}")
        before = p99(between(self.hedged, 0, self.injected))
        limit = max(NORMAL * before, self.floor)
        self.recovered = recovery(self.hedged, self.all, self.injected if f.around else self.removed, limit)
        end = self.removed - self.injected if f.around and f.lasts > 5 else ANY
        if self.recovered is None or self.recovered > end:
            self.broken.append("not well again" + (" while it lasted" if f.around else ""))
        for p, was, now, kept in zip(self.mesh.sidecars, self.rss, self.rss_after, self.kept):
            if kept and now > GROWTH * was + ALLOWANCE:
                self.broken.append(f"{p.name} grew from {was >> 20} to {now >> 20} MiB")

    def cells(self):
        f = self.fault
        phases = [between(self.all, 0, self.injected), between(self.all, self.injected, self.removed),
                  between(self.all, self.removed, ANY)]
        mib = [f"{was / 2**20:.0f}, {now / 2**20:.0f}" + ("" if kept else " (new)") for was, now, kept in
               ((self.rss[0], self.rss_after[0], self.kept[0]), (max(self.rss[1:]), max(self.rss_after[1:]), True))]
        return (f"**{f.name}**: {f.what}; {self.removed - self.injected:.0f} s", str(len(self.all)),
                counted(self.hedged), counted(self.others),
                ("never" if self.recovered is None else f"{self.recovered:.1f}") + ("" if f.around else " *"),
                ", ".join("-" if (t := p99(phase)) is None else f"{1000 * t:.0f}" for phase in phases),
                *mib, f.promise(), "**broken**: " + "; ".join(self.broken) if self.broken else "kept")


def counted(requests):
    return ", ".join(f"{n} {why}" for why, n in failures(requests).most_common()) or "0"


def write_table(file, m, trials):
    """Writes the table and its conditions into a page, after the page's own text."""
    text = ""
    if os.path.exists(file):
        with open(file, encoding="utf-8") as f:
            text = f.read().partition("| " + COLUMNS[0])[0]
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(t.cells() for t in trials)]
    with open(file, "w", encoding="utf-8") as f:
        f.write(text + "".join("| " + " | ".join(row) + " |\n" for row in rows) +
                f"\nMeasured on Linux {platform.release().split('-')[0]} with {m.network.cables()}, {os.cpu_count()} CPUs for all of it and "
                f"other work (load average {os.getloadavg()[2]:.0f}), so latencies depend on the machine as much as on the sidecars.\n")


def main():
    a = argparse.ArgumentParser(prog="scripts/chaos.sh", description=__doc__)
    a.add_argument("--short", action="store_true", help="a few faults, in less than 4 minutes")
    a.add_argument("--markdown", metavar="FILE", help="write the table into this page, after its text")
    a.add_argument("faults", nargs="*", metavar="FAULT", help="these alone, of: " + " ".join(FAULTS))
    o = a.parse_intermixed_args()
    names = o.faults or (SHORT if o.short else FAULTS)
    if unknown := [name for name in names if name not in FAULTS]:
        a.error(f"unknown faults: {' '.join(unknown)}")
    suite = Suite()
    mesh = Mesh(suite)
    trials = []
    try:
        mesh.start()
        print("cables: " + mesh.network.cables(), flush=True)
        for name in names:
            t = Trial(mesh, FAULTS[name], o.short)
            t.run()
            trials.append(t)
            print(" | ".join(t.cells()), flush=True)
            suite.check(name, not t.broken, "; ".join(t.broken))
        if o.markdown:
            write_table(o.markdown, mesh, trials)
        return suite.finish()
    finally:
        mesh.remove()


if __name__ == "__main__":
    sys.exit(main())
