#!/usr/bin/env bash
# Counts the cost of a request: the instructions of its way through the core and the
# codecs, and the system calls and allocations of a consumer's and a provider's sidecar
# under load. Fails when one is above its limit in cost.limits. Counts, unlike times,
# hardly depend on the machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

need go wrk strace valgrind
workspace
go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
# The core without cmd/remora/default.pgo: a new profile must not change a request's cost.
go test -c -pgo=off -o "$dir/bin/core" ./proxy
BIN=$dir/bin go test -count=1 -v -timeout 60m -run "^TestCost$" ./internal/cost
