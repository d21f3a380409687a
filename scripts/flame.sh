#!/usr/bin/env bash
# Draws where the consumer's sidecar of two spends its CPU under the load of 64
# connections (docs/images/flame.svg), by "remora profile".
#
#   scripts/flame.sh [FILE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

need go python3 wrk openssl
workspace
CGO_ENABLED=0 go build -trimpath -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
suite 600 scripts/pgo/profiles.py 30 "$dir" two-hops
cp "$dir/two-hops-consumer.svg" "${1:-docs/images/flame.svg}"
