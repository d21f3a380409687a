#!/usr/bin/env bash
# Prints what connections, requests and links cost a sidecar in memory. Needs Go
# and Python 3. Everything listens on free ports and is gone at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

workspace
go build -o "$dir/bin/" ./cmd/remora
PYTHONPATH=scripts/interop attend_for 600 python3 -B scripts/sizing/sizing.py "$dir/bin" "$dir"
