#!/usr/bin/env bash
# Whether sidecars make of a registry what it has, while a cluster of three etcds has faults in a random order, and while
# endpoints come and go under load: see docs/testing.md.
#
#   scripts/history.sh [SECONDS]   how long the faults follow each other (default: 300)
#
#   HISTORY=DIR   keeps the history there, for "remora-lab history check"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh
need etcd

if [[ -n ${HISTORY:-} ]]; then
	HISTORY=$(realpath -m "$HISTORY") # go test runs elsewhere
	export HISTORY
fi
export HISTORY_SECONDS=${1:-300}
attend_test -count=1 -v -timeout $((HISTORY_SECONDS + 900))s -run '^TestHistory$' ./e2e/registry
