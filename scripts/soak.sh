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

dir=${KEEP:-$(mktemp -d)}
mkdir -p "$dir/bin"
trap 'if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT

venv=${VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/remora-streams-venv}
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r scripts/streams/requirements.txt

go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab ./scripts/streams/bulk
PYTHONPATH=scripts/interop:scripts/attack:scripts/bench:scripts/plots timeout --kill-after=10 $((2 * seconds + 900)) \
	"$venv/bin/python" -B scripts/soak/soak.py "$dir/bin" "$dir" "$seconds" "${OUT:-}"
