#!/usr/bin/env bash
# Remora between programs that are not its own; see interop/interop.py. Needs
# etcd (Debian: etcd-server), curl, wrk, Java 17 or later, Node, and Python 3
# with venv. Everything listens on free ports of 127.0.0.1 and is gone at the
# end. The last line is the count of checks.
#
#   VENV=DIR   where the Python environment is kept from run to run
#   KEEP=DIR   keep configuration files and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

dir=${KEEP:-$(mktemp -d)}
mkdir -p "$dir/bin"
trap 'if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT

venv=${VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/remora-interop-venv}
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r scripts/interop/requirements.txt

go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
timeout --kill-after=10 1800 "$venv/bin/python" scripts/interop/interop.py "$dir/bin" "$dir"
