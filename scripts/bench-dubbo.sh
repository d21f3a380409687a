#!/usr/bin/env bash
# What it costs to make Dubbo calls of HTTP requests: forms into a consumer's sidecar,
# fastjson out of three providers' sidecars, with a provider of the lab behind each.
#
#   scripts/bench-dubbo.sh [ROUNDS] [--json FILE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

for tool in go python3 wrk; do
	command -v "$tool" >/dev/null || { echo "bench-dubbo: $tool is missing (apt-get install wrk python3)" >&2; exit 1; }
done

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" ./cmd/remora ./cmd/remora-lab
PYTHONPATH=scripts/interop attend python3 -B scripts/bench/dubbo.py --binaries "$bin" "$@"
