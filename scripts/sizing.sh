#!/usr/bin/env bash
# Prints what connections, requests and links cost a sidecar in memory. Needs Go
# and Python 3. Everything listens on free ports and is gone at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/" ./cmd/remora
timeout --kill-after=10 300 python3 -B scripts/sizing/sizing.py "$dir"
