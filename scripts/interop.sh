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
source scripts/lib.sh

workspace
virtual_python interop scripts/interop/requirements.txt

go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
attend_for 1800 "$python" scripts/interop/interop.py "$dir/bin" "$dir"
