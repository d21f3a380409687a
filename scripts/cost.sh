#!/usr/bin/env bash
# The guard over what a request costs: counts the system calls and allocations of
# a consumer's and a provider's sidecar under load, and fails when one is above
# its limit in cost.limits. Counts, unlike times, hardly depend on the machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

for tool in go python3 wrk strace; do
	command -v "$tool" >/dev/null || { echo "cost: $tool is missing (apt-get install wrk strace python3)" >&2; exit 1; }
done

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" ./cmd/remora ./cmd/remora-lab
PYTHONPATH=scripts/interop attend python3 -B scripts/bench/cost.py --binaries "$bin" --limits scripts/cost.limits
