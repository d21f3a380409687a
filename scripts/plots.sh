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
#
# What the sidecar costs beside other proxies (docs/images/cost.svg) needs another one:
#
#   scripts/bench.sh work --json WORK.json
#   scripts/plots.sh --work WORK.json
#
# What each budget of extra load buys (docs/images/frontier-*.svg) needs a third:
#
#   scripts/tail.sh --frontier --json FRONTIER.json
#   scripts/plots.sh --frontier FRONTIER.json
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/" ./cmd/remora ./cmd/remora-lab
if (($# == 2)); then
	measured=("$@")
elif (($# == 0)); then
	measured=("$dir/tail.json" "$dir/shadow.json")
	scripts/tail.sh --json "${measured[0]}" || true # a missed promise can be drawn
	"$dir/remora-lab" demo --mode shadow --seconds 30 --json "${measured[1]}"
else
	echo "usage: scripts/plots.sh [TAIL.json SHADOW.json | --work WORK.json | --frontier FRONTIER.json]" >&2
	exit 2
fi
mkdir -p docs/images
"$dir/remora-lab" plots "${measured[@]}" docs/images
