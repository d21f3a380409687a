"""Counts the instructions of a request's way through the core and the codecs, without the
profile and with it. See ../pgo.sh.

    gain.py LIMITS    BIN holds both test binaries of ./proxy
"""

import statistics
import sys

import instructions
from cost import read_limits

from harness.process import Failed, tool

# Below this mean it is time for a new profile; one that is new spares about 7%.
LEAST = 0.02


def main():
    _, shapes = read_limits(sys.argv[1])
    without, with_it = (instructions.count(tool(name), shapes) for name in ("without", "with"))
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
