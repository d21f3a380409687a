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
from mesh import BUDGET, DEADLINE, LEASE, Mesh

from harness.process import Timeout
from harness.suite import Suite

# Requests a second, of both kinds.
HEDGED, OTHERS = 200, 100

# Seconds of load before each fault and after it.
LEAD, TAIL = 3, 8

# Latency is normal again within so many times the P99 before, and at least so many seconds.
NORMAL, FLOOR = 3, 0.025

# Seconds after which a fault is noticed, even on a machine that stalls itself.
NOTICED = 1

# How much memory may grow under a fault: this many times, and bytes.
GROWTH, ALLOWANCE = 1.5, 16 << 20

# The faults of --short.
SHORT = ("loss-10", "partition", "rst", "kill-provider", "kill-app", "stop-provider", "stop-app", "etcd-leader")

COLUMNS = ("fault", "requests", "failed, idempotent", "failed, others", "well again after, s", "P99 ms: before, during, after",
           "RSS MiB: consumer", "providers", "promised", "")

TEXT = """# Faults

What becomes of requests when networks, machines, disks and etcd fail. `scripts/chaos.sh --markdown lab/bench/results/chaos.md`
writes this page; the script fails when a promise does not hold.

**The mesh.** A consumer's sidecar, three providers (a sidecar and an application that takes {median}) and an etcd of three,
real processes, each host a network namespace of its own on one bridge. {cables} etcd's leases are {lease} s. All sidecars
live through all faults but those that are killed as part of one: nothing is restarted to recover.

**The load.** An open loop on the consumer's host of {hedged} requests a second that are marked as idempotent, and so are
hedged and retried, and of {others} that are not. Each has {deadline} s. `hedge.budget` is {budget}, ten times the default: on a
machine that stalls itself as many requests are at a provider that is lost. A failure is any answer but 200, and none at all; it
is shown by `x-remora-error`, or by what the client saw (`connect`, `reset`, `timeout`).

**Well again** is the first second in which no request fails and the P99 of the idempotent ones is at most {normal} times
that before the fault, or {floor} ms. Where sidecars route around the fault it counts from its beginning, else (*) from its
end. RSS is before the fault and when all is as before; of the providers it is the largest.

**What is promised.** Idempotent requests do not fail while there is a provider that answers, and a
[token](../../../docs/hedging.md#when-it-cant-help) for each that was at one that does not. Others are never sent twice once an application
may have seen them: those that were at the provider that was lost fail, with `upstream-reset`, or `deadline` where nothing tells
that it is lost. At most as many may as were under way at once until a second after it and were answered, by the other
providers, and the few that the table says. In front of a sidecar that is killed its callers see their connections end.

**Clocks.** A machine's clock can't be stepped for a test, and neither time namespaces nor libfaketime reach a Go program. So
the processes' own copies of the vDSO's `clock_gettime` are overwritten (`scripts/chaos/clock.py`): from one moment to the next
they are told another wall clock, and the same monotonic one. Clocks of etcd, of applications and of files stay right.

**What it does not show.** One fault at a time, one consumer, a modest rate, all on one machine.

"""


def sentence(m):
    return ("They are impaired by `tc netem`." if m.network.netem else
            "The kernel here has no netem: the cables of the providers are TAP devices, between which a program carries, loses, "
            "delays and reorders Ethernet frames.")


class Trial:
    """One fault, and its measurements."""

    def __init__(self, mesh, fault):
        self.mesh, self.fault, self.broken = mesh, fault, []

    def run(self):
        m, f = self.mesh, self.fault
        m.wait_normal()
        self.rss = [p.rss() for p in m.sidecars]
        pids = {name: p.child.pid for name, p in m.processes.items()}
        seconds = LEAD + f.lasts + TAIL
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
        self.all = sorted(self.hedged + self.others)
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
        limit = max(NORMAL * before, FLOOR)
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


def markdown(m, trials):
    head = TEXT.format(median="1 ms in the median", cables=sentence(m), lease=LEASE, hedged=HEDGED, others=OTHERS,
                       deadline=DEADLINE, budget=BUDGET, normal=NORMAL, floor=round(1000 * FLOOR))
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(t.cells() for t in trials)]
    foot = (f"\nMeasured on Linux {platform.release().split('-')[0]}, {os.cpu_count()} CPUs for all of it and whatever else they did "
            f"(load average {os.getloadavg()[2]:.0f}), so that latencies are as much the machine's as the sidecars'.\n")
    return head + "".join("| " + " | ".join(row) + " |\n" for row in rows) + foot


def main():
    a = argparse.ArgumentParser(prog="scripts/chaos.sh", description=__doc__)
    a.add_argument("--short", action="store_true", help="a few faults, in less than 4 minutes")
    a.add_argument("--markdown", metavar="FILE", help="write the table there")
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
        print("cables: " + ("tc netem" if mesh.network.netem else "wire.py, for the kernel has no sch_netem"), flush=True)
        for name in names:
            t = Trial(mesh, FAULTS[name])
            t.run()
            trials.append(t)
            print(" | ".join(t.cells()), flush=True)
            suite.check(name, not t.broken, "; ".join(t.broken))
        if o.markdown:
            with open(o.markdown, "w", encoding="utf-8") as f:
                f.write(markdown(mesh, trials))
        return suite.finish()
    finally:
        mesh.remove()


if __name__ == "__main__":
    sys.exit(main())
