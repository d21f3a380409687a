#!/usr/bin/env bash
# The dashboard in a real browser: a sidecar with three replicas that freeze now and
# then, load, and a burst. Chromium, without a screen, opens the page, and its content
# is checked. Needs Python 3 with venv. The last line is the count of checks.
#
#   scripts/dashboard.sh [--screenshot FILE] [--states DIR]
#
#   --screenshot FILE   docs/images/dashboard.png was made so
#   --states DIR        pictures of other states: empty, failing, many endpoints, narrow, dark, lost
#
#   CHROMIUM     the browser (default: chromium, then google-chrome)
#   KEEP=DIR     keep configuration files and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

browser=${CHROMIUM:-$(command -v chromium || command -v google-chrome || true)}
[[ -n $browser ]] || { echo "dashboard: chromium is missing (apt-get install chromium)" >&2; exit 1; }

workspace
virtual_python dashboard scripts/dashboard/requirements.txt
go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
suite 900 scripts/dashboard/dashboard.py "$browser" "$@"
