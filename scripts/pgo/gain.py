"""Counts what the profile spares: instructions of a request's way through the core and
the codecs, without it and with it. See ../pgo.sh."""

import argparse
import os
import statistics
import sys

import instructions
from cost import read_limits
from processes import Failed

# Below this mean it is time for a new profile; one that is new spares about 7%.
LEAST = 0.02


def main():
    a = argparse.ArgumentParser(prog="scripts/pgo.sh", description=__doc__)
    a.add_argument("--binaries", required=True, help=argparse.SUPPRESS)
    a.add_argument("--limits", required=True, help=argparse.SUPPRESS)
    o = a.parse_args()
    _, shapes = read_limits(o.limits)
    without, with_it = (instructions.count(os.path.join(o.binaries, name), shapes) for name in ("without", "with"))
    print("core, instructions per request, without the profile and with it")
    for shape in shapes:
        print(f"  {shape:20} {without[shape]:8.0f}  {with_it[shape]:8.0f}  {with_it[shape] / without[shape] - 1:+.1%}")
    spared = statistics.mean(1 - with_it[shape] / without[shape] for shape in shapes)
    if spared < LEAST:
        raise Failed(f"the profile spares {spared:.1%}: make it anew with scripts/pgo.sh")


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        sys.exit(f"pgo: {e}")
