#!/usr/bin/env bash
# Streams through two sidecars, with programs that are not Remora's own: curl
# moving 10 GiB both ways, Server-Sent Events and WebSocket of a Python server
# with their usual libraries; see streams/streams.py. Needs curl and Python 3
# with venv. Everything listens on free ports of 127.0.0.1 and is gone at the
# end. The last line is the count of checks.
#
#   BYTES=N      what curl moves each way; default 10 GiB
#   ROUNDS=N     of small requests with and without streams; default 3
#   RATE=N       bytes a second of each of those streams; default 25 MB
#   VENV=DIR     keeps the Python environment from run to run
#   KEEP=DIR     keep configuration files and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need curl
workspace
virtual_python streams scripts/streams/requirements.txt

go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab ./scripts/streams/bulk
suite 900 scripts/streams/streams.py "${BYTES:-$((10 << 30))}"
