#!/usr/bin/env bash
# Kills and restarts parts of a mesh of real processes under load; see
# interop/kill.py. Needs etcd (Debian: etcd-server) and Python 3. Everything
# listens on free ports of 127.0.0.1 and is gone at the end. The last line is the
# count of checks.
#
#   REQUESTS=200000   how many requests at least
#   KEEP=DIR          keep configuration files and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

workspace

go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
attend_for 1200 python3 scripts/interop/kill.py "$dir/bin" "$dir"
