#!/usr/bin/env bash
# Hot restarts of consumer and provider sidecars by turns, and ends (SIGTERM) and starts of
# a provider, on real processes under constant open-loop load by clients that keep
# their connections and never send a request again. Not one may fail.
#
#   scripts/restart.sh          10 restarts and 4 cycles at 300 requests a second, as CI runs it
#   scripts/restart.sh 100      100 restarts and 20 cycles at 1,000 requests a second: the acceptance
#
#   scripts/restart.sh --changes 5000000      50 reloads and 20 restarts over 5 million requests
#   scripts/restart.sh --kills 20             20 kills of a provider's sidecar: no GET may fail, no POST be sent twice
#
# RESTARTS, CYCLES and RATE set each of them.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ${1:-} == --changes ]]; then
	exec go test ./e2e/load -count=1 -timeout=3h -v -run '^TestChangesUnderOpenLoad$' \
		-change-requests="$2" -change-rate="${RATE:-4000}"
fi
if [[ ${1:-} == --kills ]]; then
	exec go test ./e2e/load -count=1 -timeout=60m -v -run '^TestProviderKills$' -provider-kills="$2"
fi
restarts=${1:-${RESTARTS:-10}}
full() { if ((restarts >= 100)); then echo "$1"; else echo "$2"; fi; }
go test ./e2e/load -count=1 -timeout=60m -v -run '^Test(Restart|Cycles)UnderOpenLoad$' \
	-restarts="$restarts" -cycles="${CYCLES:-$(full 20 4)}" -restart-rate="${RATE:-$(full 1000 300)}"
