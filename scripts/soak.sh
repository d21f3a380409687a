#!/usr/bin/env bash
# Mixed traffic through sidecars of real processes for a long time, while replicas,
# providers and etcd are killed and the configuration changes: whatever leaks shows
# as a slope and fails; see soak/soak.py. Needs openssl, curl and Python 3 with venv.
# Everything listens on free ports of 127.0.0.1 and is gone at the end. The last line
# is the count of checks.
#
#   scripts/soak.sh DURATION   of traffic, at least 2m; 30m is the acceptance
#
#   OUT=DIR      keep the drawings and the samples in DIR
#   VENV=DIR     where the Python environment is kept from run to run
#   KEEP=DIR     keep configuration files and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

if [[ ! ${1:-} =~ ^([0-9]+)([smh])$ ]]; then
	echo "usage: scripts/soak.sh DURATION, such as 2m" >&2
	exit 2
fi
declare -A unit=([s]=1 [m]=60 [h]=3600)
seconds=$((BASH_REMATCH[1] * unit[${BASH_REMATCH[2]}]))
if ((seconds < 120)); then
	echo "soak: less than 2m tells nothing: the first minute is not judged" >&2
	exit 2
fi

workspace
virtual_python streams scripts/streams/requirements.txt

go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab ./scripts/streams/bulk
PYTHONPATH=scripts/interop:scripts/plots attend_for $((2 * seconds + 900)) \
	"$python" -B scripts/soak/soak.py "$dir/bin" "$dir" "$seconds" "${OUT:-}"
