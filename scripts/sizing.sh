#!/usr/bin/env bash
# Prints what connections, requests and links cost a sidecar in memory, and what a thousand services of each source of
# endpoints cost. Everything listens on free ports and is gone at the end.
#
#   scripts/sizing.sh [--count N] [--links N]
#   scripts/sizing.sh --sources      only the services
#
#   SECONDS_AT_REST=30    how long the use of CPU is measured
#   LOOPS=1               of the sidecar with the services
#   KUBE_APISERVER        a Kubernetes API server; without one, and without that of scripts/sources.sh, Kubernetes is left out
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

# Services of each source.
sources() {
	local server=${XDG_CACHE_HOME:-$HOME/.cache}/remora-kube/kube-apiserver-v1.36.3
	if [[ -z ${KUBE_APISERVER:-} && -x $server ]]; then export KUBE_APISERVER=$server; fi
	SECONDS_AT_REST=${SECONDS_AT_REST:-30} go test ./e2e/sources -count 1 -v -run '^TestManyServices$' | sed -n 's/.*sizing: //p; /^\(--- FAIL\|FAIL\)/p'
}

sources
if [[ ${1:-} == --sources ]]; then exit; fi
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" ./cmd/remora ./cmd/remora-lab
attend_for 600 "$bin/remora-lab" bench memory "$@"
