#!/usr/bin/env bash
# What it costs to make Dubbo calls of HTTP requests: forms into a consumer's sidecar,
# fastjson out of three providers' sidecars, with a provider of the lab behind each.
#
#   scripts/bench-dubbo.sh [--rounds N] [--json FILE] ...   (see --help)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

command -v wrk >/dev/null || { echo "bench-dubbo: wrk is missing (apt-get install wrk)" >&2; exit 1; }

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" ./cmd/remora ./cmd/remora-lab
attend "$bin/remora-lab" bench dubbo "$@"
