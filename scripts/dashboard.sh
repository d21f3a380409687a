#!/usr/bin/env bash
# The dashboard in a real browser: a sidecar with three replicas that freeze now and
# then, load, and a burst; Chromium, without a screen, opens the page, and what it
# shows is looked at. Prints each check; the last line is their count, and the
# status 1 if one failed.
#
#   scripts/dashboard.sh [--screenshot FILE]    docs/images/dashboard.png was made so
#
#   CHROMIUM     the browser (default: chromium, then google-chrome)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

browser=${CHROMIUM:-$(command -v chromium || command -v google-chrome || true)}
[[ -n $browser ]] || { echo "dashboard: chromium is missing (apt-get install chromium)" >&2; exit 1; }
for tool in go python3; do
	command -v "$tool" >/dev/null || { echo "dashboard: $tool is missing" >&2; exit 1; }
done

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" ./cmd/remora ./cmd/remora-lab
PYTHONPATH=scripts/bench:scripts/interop attend python3 -B scripts/dashboard/dashboard.py --binaries "$bin" --browser "$browser" "$@"
