#!/usr/bin/env bash
# Draws latency curves with hedging and without (docs/images/tail.svg), and what shadow
# mode forecasts for each delay (docs/images/forecast.svg), from two measurements:
#
#   scripts/tail.sh --json TAIL.json
#   remora-lab demo --mode shadow --seconds 30 --json SHADOW.json
#   scripts/plots.sh [TAIL.json SHADOW.json]
#
# Without files it takes the measurements itself, in 13 minutes; for them the machine
# should have nothing else to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/" ./cmd/remora ./cmd/remora-lab
if (($# == 2)); then
	tail=$1 shadow=$2
elif (($# == 0)); then
	tail=$dir/tail.json shadow=$dir/shadow.json
	scripts/tail.sh --json "$tail" || true # a missed promise can be drawn
	"$dir/remora-lab" demo --mode shadow --seconds 30 --json "$shadow"
else
	echo "usage: scripts/plots.sh [TAIL.json SHADOW.json]" >&2
	exit 2
fi
mkdir -p docs/images
"$dir/remora-lab" plots "$tail" "$shadow" docs/images
