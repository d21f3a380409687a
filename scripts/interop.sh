#!/usr/bin/env bash
# Remora between independent programs; see interop/interop.py. Needs
# etcd (Debian: etcd-server), curl, wrk, Java 17 or later, Node, and Python 3
# with venv. Everything listens on free ports of 127.0.0.1 and is gone at the
# end. The last line is the count of checks.
#
#   VENV=DIR   keeps the Python environment from run to run
#   KEEP=DIR   keep configuration files and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need etcd curl wrk java node
workspace
virtual_python interop scripts/interop/requirements.txt

go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
suite 1800 scripts/interop/interop.py
