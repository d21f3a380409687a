#!/usr/bin/env bash
# Whether tests notice faults: changes one place of the code at a time, at random, and runs the tests of its package, and then those
# of the packages that test it too. Prints what share of the changes of each package they notice, and the changes that survive.
# The status is 1 if less than 95% of a package's changes are noticed, or in proxy/allow and proxy/certs not all.
#
#   scripts/mutate.sh [--seed N] [--each N] [--jobs N] [--log FILE] [FOLDER ...]
#
#   --seed N     chooses the changes (default 1)
#   --each N     at least so many changes of each package (default 20, of all packages in two hours); 0 means all
#   --jobs N     changes that are tried at a time (default 2)
#   --log FILE   the verdicts (default bin/mutate/SEED.log): another run with the file goes on where this one has ended
#   FOLDER       a package, or with /... all in it (default: proxy, protocol, lb and registry)
#
# Changes that can't be noticed, since the program does the same, are in internal/mutate/equivalent.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export GOFLAGS="${GOFLAGS:-} -pgo=off"
exec go run ./internal/mutate "$@"
