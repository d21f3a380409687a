#!/usr/bin/env bash
# The guard over what a request costs: counts the instructions of its way through the
# core and the codecs, and the system calls and allocations of a consumer's and a
# provider's sidecar under load, and fails when one is above its limit in cost.limits.
# Counts, unlike times, hardly depend on the machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

for tool in go python3 wrk strace valgrind; do
	command -v "$tool" >/dev/null || { echo "cost: $tool is missing (apt-get install wrk strace valgrind python3)" >&2; exit 1; }
done

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" ./cmd/remora ./cmd/remora-lab
# The core without cmd/remora/default.pgo: a new profile is no change of what a request takes.
go test -c -pgo=off -o "$bin/core" ./proxy
PYTHONPATH=scripts/interop attend python3 -B scripts/bench/cost.py --binaries "$bin" --core "$bin/core" --limits scripts/cost.limits
