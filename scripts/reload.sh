#!/usr/bin/env bash
# Reloads under constant open-loop load, on real processes: routes, services, limits,
# hedging and a listener's address change, and not one request may fail.
#
#   scripts/reload.sh          20 reloads at 300 requests a second, as CI runs it
#   scripts/reload.sh 100      100 reloads at 1,000 requests a second: the acceptance
set -euo pipefail
cd "$(dirname "$0")/.."

reloads=${1:-20}
rate=${2:-$([ "$reloads" -ge 100 ] && echo 1000 || echo 300)}
go test ./e2e/load -count=1 -timeout=20m -v -run '^TestReloadUnderOpenLoad$' \
	-reloads="$reloads" -reload-rate="$rate"
