#!/usr/bin/env bash
# Mixed traffic through sidecars of real processes for a long time, while replicas,
# providers and etcd are killed and the configuration changes. A leak shows as a slope
# and fails; see soak/soak.py. Needs openssl, curl and Python 3 with venv. Everything
# listens on free ports of 127.0.0.1 and is gone at the end. The last line is the count
# of checks.
#
#   scripts/soak.sh DURATION   of traffic, at least 2m; 30m is the acceptance
#   scripts/soak.sh --kill     kills under a closed loop instead, and not one request may
#                              fail: TestKillsUnderLoad
#
#   OUT=DIR           keep the drawings and the samples in DIR
#   REQUESTS=200000   of --kill, at least
#   VENV=DIR          keeps the Python environment from run to run
#   KEEP=DIR          keep configuration files and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

if [[ ${1:-} == --kill ]]; then
	exec go test ./e2e/load -count=1 -timeout 20m -run '^TestKillsUnderLoad$' -kill-requests "${REQUESTS:-200000}" -v
fi
if [[ ${1:-} =~ ^([0-9]+)([smh])$ ]]; then
	declare -A unit=([s]=1 [m]=60 [h]=3600)
	seconds=$((BASH_REMATCH[1] * unit[${BASH_REMATCH[2]}]))
else
	echo "usage: scripts/soak.sh DURATION, such as 2m, or --kill" >&2
	exit 2
fi
if ((seconds < 120)); then
	echo "soak: the least is 2m, since the first minute is not judged" >&2
	exit 2
fi

need openssl curl
workspace
virtual_python streams scripts/streams/requirements.txt
go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab ./scripts/streams/bulk
suite $((2 * seconds + 900)) scripts/soak/soak.py "$seconds" "${OUT:-}"
