#!/usr/bin/env bash
# HTTP/2 between Remora and other programs: every case of h2spec against its listeners, plain and
# with TLS; nghttp, h2load, curl, nginx and Envoy call it, and it calls nginx, Envoy and Go;
# HTTP/1.1 in and HTTP/2 out, and the other way round; see e2e/peers/http2_peers_test.go.
# All cases pass but one: without TLS, what h2spec sends as a wrong preface gets the 400 of HTTP/1.1,
# which the listener speaks as well.
#
# Needs Go, of Debian's packages curl, nginx and nghttp2-client, found in PATH and /usr/sbin, and
# Python 3 with venv, for Envoy.
#
#   scripts/http2.sh [--direct]
#
#   --direct   without Remora, to check the suite itself
#   VENV=DIR   keeps the Python environment from run to run
#   KEEP=DIR   keeps the programs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

export PATH=$PATH:/usr/sbin
need curl nginx nghttp h2load
workspace
virtual_python http2 scripts/http2/requirements.txt
go build -C scripts/http2 -o "$dir/bin/" tool

PATH=$dir/bin:$(dirname "$python"):$PATH attend_test ./e2e/peers -count=1 -timeout=20m -v -run '^TestHTTP2Peers' -http2-peers="${1:---all}"
