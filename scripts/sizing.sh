#!/usr/bin/env bash
# Prints what connections, requests and links cost a sidecar in memory. Everything
# listens on free ports and is gone at the end.
#
#   scripts/sizing.sh [--count N] [--links N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" ./cmd/remora ./cmd/remora-lab
attend_for 600 "$bin/remora-lab" bench memory "$@"
