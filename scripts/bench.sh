#!/usr/bin/env bash
# What the sidecar costs: CPU per request, throughput and latency at 1, 64 and
# 512 connections, through one sidecar and through two with the link between,
# beside a run straight to the replica and, where they are installed, a TCP relay
# that parses nothing and HAProxy. All run in turn, round after round, since the
# figures of two runs can't be compared.
#
#   scripts/bench.sh [ROUNDS] [--json FILE] [--rows ROW,ROW]
#
#   BENCH_DIR   bin/relay is the relay, bin/backend the replica, if they are there
#               (default ~/.cache/remora-bench); else the replica is the lab's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

for tool in go python3 wrk; do
	command -v "$tool" >/dev/null || { echo "bench: $tool is missing (apt-get install wrk python3)" >&2; exit 1; }
done

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" ./cmd/remora ./cmd/remora-lab
PYTHONPATH=scripts/interop attend python3 -B scripts/bench/bench.py --binaries "$bin" --peers "${BENCH_DIR:-$HOME/.cache/remora-bench}" "$@"
