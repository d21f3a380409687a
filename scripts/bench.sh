#!/usr/bin/env bash
# What the sidecar costs, beside other proxies: builds both binaries and runs
# `remora-lab bench`. Compare rows of one run only.
#
#   scripts/bench.sh [KIND] [--rounds N] [--rows ROW,ROW] [--json FILE] ...   (see --help)
#
#   KIND   work, mesh, scale, https, handshakes, grpc or messages
#
#   BENCH_DIR   the newest HAProxy and nginx (scripts/peers.sh) and Envoy (venv/bin/envoy), if they are there
#               (default ~/.cache/remora-bench)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
# As in a release: the size of the program is measured, too.
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$bin/" ./cmd/remora ./cmd/remora-lab
if command -v cc >/dev/null; then
	for program in floor relay; do cc -O2 -o "$bin/$program" "lab/bench/floor/$program.c"; done
fi
attend "$bin/remora-lab" bench "$@"
