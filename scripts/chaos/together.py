"""Causes faults that come together in a mesh of real processes, by schedules drawn from seeds, and judges the history of
each. See scripts/chaos.sh.
"""

import argparse
import collections
import contextlib
import itertools
import os
import sys
import time

from causes import CAUSES
from history import DEADLINE, Breach, Caller, Round, Spell, judge, read_executions, starved
from measure import failures, read
from mesh import APPS, CONSUMERS, ETCDS, PROVIDERS, SERVICES, Mesh
from processor import Watch
from schedule import draw, parsed, steps, written
from shrink import shrink

from harness.process import PATIENCE, Failed
from harness.suite import Suite

RATE = 20  # requests a second of each caller
MEDIAN = "20ms"  # that a request takes: some are on their way whenever a fault begins

# The time of an ejection doubles up to 64 times, and goes on doubling from one schedule to the next.
OUTLIER = {"base": "100ms"}

# Seconds of load before the first fault, and once all is as before.
LEAD, TAIL = 1, 2

RECOVERY = 20  # seconds in which all is as before, after the last fault
LONGEST = 600  # seconds; a load is told to stop before

SHOWN = 3  # breaches of a rule that are printed

# A failure may need luck: a part of a schedule fails if one of so many runs does.
RUNS = 2


class Outcome:
    """What became of a schedule's run."""

    def __init__(self, breaches, callers, stopped, recovered, last, waited):
        self.breaches = breaches
        self.requests = [r for c in callers for r in c.requests if r.end() < stopped]
        self.recovered = recovered  # seconds after the last fault
        self.last = last  # the last difference from the state before
        self.waited = waited  # seconds that requests may have waited for a processor

    def text(self):
        counts = ", ".join(f"{n} {why}" for why, n in failures(self.requests).most_common()) or "none"
        return (f"{len(self.requests)} requests; failed: {counts}; as before after {self.recovered:.1f} s"
                f"{self.last and f' (last: {self.last})'}; waits for a processor {self.waited:.1f} s")

    def broken(self):
        """The breaches as lines of text, a few for each rule."""
        by_rule = collections.defaultdict(list)
        for b in self.breaches:
            by_rule[b.rule].append(b.what)
        return [f"{rule}: {len(found)}\n    " + "\n    ".join(found[:SHOWN]) for rule, found in by_rule.items()]


class Together:
    """The mesh, and the runs of schedules in it."""

    def __init__(self, suite):
        self.suite, self.mesh, self.runs = suite, None, 0

    def run(self, schedule):
        """The Outcome of a schedule."""
        self.runs += 1
        try:
            outcome = self.observe(schedule)
        except Failed as e:
            outcome = Outcome([Breach("a working mesh", str(e))], [], 0, 0, "", 0)
        if outcome.breaches:
            self.remove()  # so that nothing of it disturbs the next run
        return outcome

    def observe(self, schedule):
        if not self.mesh:
            self.mesh = Mesh(self.suite, CONSUMERS, bad_cables=CONSUMERS + PROVIDERS + ETCDS, median=MEDIAN, outlier=OUTLIER)
            self.mesh.start()
            self.mesh.check_changes()
        m = self.mesh
        m.wait_normal()
        executed = {app: os.path.getsize(m.executions(app)) for app in APPS}
        loads = [(kind, *self.load(i, *kind)) for i, kind in enumerate(itertools.product(CONSUMERS, SERVICES, (False, True)))]
        watch = Watch(lambda: [c.pid for p in m.processes.values() for c in p.alive()] + [load.child.pid for *_, load in loads])
        time.sleep(LEAD)
        begun = time.time()
        spells = play(m, schedule)
        ended = time.time()
        last = ""
        while (why := m.abnormal()) and not too_late(ended, watch.waits):
            last = why
            time.sleep(0.1)
        normal = time.time()
        time.sleep(TAIL)
        stopped = time.time()
        waits = watch.stop()
        for *_, load in loads:
            load.stop()
        callers = [Caller(sidecar, SERVICES[service][0], idempotent, read(log)) for (sidecar, service, idempotent), log, _ in loads]
        executions = sum((read_executions(m.executions(app), offset)[0] for app, offset in executed.items()), collections.Counter())
        breaches = judge(callers, executions, Round(begun, normal, stopped, spells, waits))
        if why:
            breaches.append(Breach("recovery", f"after {normal - ended:.0f} s {why}"))
        return Outcome(breaches, callers, stopped, normal - ended, last, sum(w.seconds for w in waits))

    def load(self, i, sidecar, service, idempotent):
        """Starts the i-th load of a run."""
        headers = [f"x-remora-timeout-ms: {DEADLINE * 1000:.0f}", *["x-remora-idempotent: 1"] * idempotent]
        return self.mesh.load(
            f"run-{self.runs}-{sidecar}-{service}-{'idempotent' if idempotent else 'other'}", RATE, LONGEST,
            "--seed", str(100 * self.runs + i), *(word for header in headers for word in ("--header", header)),
            host=sidecar, service=service)

    def remove(self):
        if self.mesh:
            self.mesh.remove()
            self.mesh = None


def too_late(ended, waits):
    """Reports whether all should be as before by now."""
    now = time.time()
    return now - ended > min(RECOVERY + starved(waits, ended, now), PATIENCE)


def play(m, schedule):
    """Causes the faults at their times. Returns how long each really lasted."""
    spells, lasting, start = [], {}, time.time()
    with contextlib.ExitStack() as all_faults:
        for at, event, begins in steps(schedule):
            time.sleep(max(0, start + at - time.time()))
            if begins:
                hold = contextlib.ExitStack()
                all_faults.callback(hold.close)
                lasting[id(event)] = hold, time.time()
                hold.enter_context(CAUSES[event.cause].hold(m, event.target))
            else:
                hold, begun = lasting[id(event)]
                hold.close()
                spells.append(Spell(event.cause, event.target, begun, time.time()))
    return spells


def main():
    a = argparse.ArgumentParser(prog="scripts/chaos.sh --together", description=__doc__)
    a.add_argument("--seed", type=int, default=1, help="the seed of the first schedule; the next one has the next seed")
    a.add_argument("--schedules", type=int, default=1, help="how many; default 1")
    a.add_argument("--minutes", type=float, help="schedules until so many minutes have passed")
    a.add_argument("--replay", metavar="SCHEDULE", help="this schedule, --schedules times")
    a.add_argument("--shrink", type=int, default=40, metavar="TRIES",
                   help="how many runs may shorten a schedule that fails (default 40)")
    o = a.parse_args()
    try:
        replayed = None if o.replay is None else parsed(o.replay, CAUSES)
    except ValueError as e:
        a.error(str(e))
    suite = Suite()
    together = Together(suite)
    try:
        end = time.monotonic() + 60 * (o.minutes or 0)
        for n in itertools.count():
            if time.monotonic() > end if o.minutes else n == o.schedules:
                break
            name, schedule = (f"seed {o.seed + n}", draw(o.seed + n, CAUSES)) if replayed is None else (f"run {n + 1}", replayed)
            outcome = together.run(schedule)
            print(f"\n{written(schedule)}\n    {outcome.text()}", flush=True)
            if suite.check(name, not outcome.breaches, "\n  ".join(["", *outcome.broken()])):
                continue
            shortest = shortened(together, schedule, {b.rule for b in outcome.breaches}, o.shrink)
            print(f"  the shortest schedule that fails: --replay '{written(shortest)}'", flush=True)
        return suite.finish()
    finally:
        together.remove()


def shortened(together, schedule, rules, tries):
    """A shorter schedule that breaks one of the rules, too."""
    def fails(candidate):
        for _ in range(RUNS):
            outcome = together.run(candidate)
            if rules & {b.rule for b in outcome.breaches}:
                print(f"  fails, too: {written(candidate) or 'without a fault'}", flush=True)
                return True
        return False

    return shrink(schedule, fails, tries // RUNS)


if __name__ == "__main__":
    sys.exit(main())
