"""Schedules of faults: plain data, drawn from a seed, and written on one line."""

import random
import re
from typing import NamedTuple

# How many faults a schedule has, in how many seconds they begin, and when the last one ends at the latest.
FAULTS, BEGIN, END = (2, 9), 8, 12

# The share of faults whose target belongs to a host that has another fault in the schedule.
GATHERED = 0.5


class Event(NamedTuple):
    at: float  # seconds from the start
    lasts: float  # seconds
    cause: str
    target: str

    def end(self):
        return self.at + self.lasts


def draw(seed, causes):
    """A schedule, in the order of the beginnings, of causes.Cause by their names."""
    rng = random.Random(seed)
    names = sorted(causes)
    schedule = []
    for _ in range(rng.randint(*FAULTS)):
        [name] = rng.choices(names, [causes[name].weight for name in names])
        at, lasts = rng.uniform(0, BEGIN), rng.uniform(*causes[name].lasts)
        targets = causes[name].targets
        if rng.random() < GATHERED:
            targets = [t for t in targets if any(beside(t, e.target) for e in schedule)] or targets
        schedule.append(Event(round(at, 1), round(min(lasts, END - at), 1), name, rng.choice(targets)))
    return sorted(schedule)


def beside(one, other):
    """Reports whether two targets are the same, or an application and its provider."""
    return one.replace("app", "provider") == other.replace("app", "provider")


def end(schedule):
    """When the last fault ends, in seconds from the start."""
    return max((e.end() for e in schedule), default=0)


def written(schedule):
    return " ".join(f"{e.at:g}+{e.lasts:g}:{e.cause}:{e.target}" for e in schedule)


def parsed(text, causes):
    """The schedule of a line that written has made. ValueError says what is wrong."""
    schedule = []
    for word in text.split():
        m = re.fullmatch(r"([0-9.]+)\+([0-9.]+):([^:]+):([^:]+)", word)
        if not m:
            raise ValueError(f"{word}: want AT+LASTS:CAUSE:TARGET")
        event = Event(float(m[1]), float(m[2]), m[3], m[4])
        if event.cause not in causes:
            raise ValueError(f"{word}: unknown cause, want one of {' '.join(causes)}")
        if event.target not in causes[event.cause].targets:
            raise ValueError(f"{word}: want a target of {' '.join(causes[event.cause].targets)}")
        schedule.append(event)
    return sorted(schedule)


def steps(schedule):
    """The beginnings and ends in their order: (seconds, event, whether it begins)."""
    found = []
    for i, e in enumerate(schedule):
        found += [(e.at, i, 0), (e.end(), i, 1)]
    return [(at, schedule[i], not ends) for at, i, ends in sorted(found)]
