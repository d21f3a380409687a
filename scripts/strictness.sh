#!/usr/bin/env bash
# Says the requests of protocol/http1/testdata to Remora, nginx, HAProxy and Envoy,
# each in front of a replica that records the bytes it gets, and compares what
# becomes of them. Writes the table in docs/strictness.md, and fails when a proxy
# does otherwise than Remora and strictness/explained.txt does not say why.
# Everything listens on 127.0.0.1 and is gone at the end.
#
#   scripts/strictness.sh [-list]   print each difference, with its verdicts
#
#   ENVOY=PATH   of envoy (default ~/.cache/remora-bench/venv/bin/envoy); nginx and
#                haproxy are found in PATH and /usr/sbin
#   OUT=FILE     write the document there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh
PATH=$PATH:/usr/sbin

workspace
go build -o "$dir/bin/" ./cmd/remora ./scripts/strictness
attend "$dir/bin/strictness" -remora "$dir/bin/remora" -dir "$dir" -out "${OUT:-docs/strictness.md}" \
	-envoy "${ENVOY:-$HOME/.cache/remora-bench/venv/bin/envoy}" "$@"
