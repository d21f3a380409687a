#!/usr/bin/env bash
# Connect's conformance suite, as far as it is about gRPC over HTTP/2 in plain text: its reference
# client calls its reference server directly, through one sidecar and through two; see
# e2e/peers/connect_test.go. Needs Go. Everything listens on free ports of 127.0.0.1 and is gone
# at the end.
#
#   scripts/connect.sh
#
#   WAYS=WAYS   direct, one, two: the ways to the server, with commas between them
#   KEEP=DIR    keeps the programs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

workspace
go build -C scripts/connect -o "$dir/bin/" tool

PATH=$dir/bin:$PATH attend_test ./e2e/peers -count=1 -timeout=20m -v -run '^TestConnectConformance$' -connect-ways="${WAYS:-direct,one,two}"
