"""Finds the shortest schedule that still fails (delta debugging: A. Zeller and R. Hildebrandt, "Simplifying and
Isolating Failure-Inducing Input", 2002)."""

LEAST = 0.5  # seconds; shorter faults are not halved


def shrink(schedule, fails, tries):
    """A part of a schedule that fails, with fewer and shorter faults, that fails too. fails is asked at most tries times;
    each time that it says True is believed."""
    def ask(candidate):
        nonlocal tries
        tries -= 1
        return fails(candidate)

    parts = 2
    while schedule and tries > 0:
        size = -(-len(schedule) // parts)
        for i in range(0, len(schedule), size):
            rest = schedule[:i] + schedule[i + size:]
            if tries > 0 and ask(rest):
                schedule, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(schedule))
    for i in range(len(schedule)):
        while tries > 0 and schedule[i].lasts >= 2 * LEAST:
            event = schedule[i]
            shorter = [*schedule[:i], event._replace(lasts=round(event.lasts / 2, 1)), *schedule[i + 1:]]
            if not ask(shorter):
                break
            schedule = shorter
    if tries > 0 and schedule and schedule[0].at > 0:
        earlier = [e._replace(at=round(e.at - schedule[0].at, 1)) for e in schedule]
        if ask(earlier):
            schedule = earlier
    return schedule
