#!/usr/bin/env bash
# Attacks two sidecars of real processes beside a well-behaved load; see
# attack/attack.py. Needs Python 3. Everything listens on free ports of 127.0.0.1
# and is gone at the end. The last line is the count of attacks.
#
#   scripts/attack.sh [NAME...]   only attacks with NAME in their names
#   BUFFERED=32                   limits.buffered, MiB
#   KEEP=DIR                      keep configuration files and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

workspace

go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
PYTHONPATH=scripts/interop attend_for 900 python3 -B scripts/attack/attack.py "$dir/bin" "$dir" "$@"
