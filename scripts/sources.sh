#!/usr/bin/env bash
# A sidecar whose endpoints are in real sources, a Kubernetes API server among them, while replicas come and go under load, and
# while the sources are killed, cut off, frozen and wiped. Needs root, as the replicas have addresses of a network namespace.
#
#   scripts/sources.sh [TEST]   which tests, as a pattern of go test (default: all), such as TestChurn/etcd
#
#   SECONDS_OF_CHURN=60   how long replicas come and go
#   KUBE_APISERVER        the API server (default: built once, and kept in the user's cache)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh
need etcd ip unshare

export SECONDS_OF_CHURN=${SECONDS_OF_CHURN:-60} REPLICAS=10.222
export KUBE_APISERVER=${KUBE_APISERVER:-${XDG_CACHE_HOME:-$HOME/.cache}/remora-kube/kube-apiserver-v1.36.3}
scripts/kube-apiserver.sh "$KUBE_APISERVER"
workspace
go test -c -o "$dir/bin/sources.test" ./e2e/sources
cd e2e/sources
unshare --net bash -c 'ip link set lo up && ip route add local 10.222.0.0/16 dev lo && "$@"' - \
	"$dir/bin/sources.test" -test.v -test.timeout 30m -test.run "${1:-.}" | tee "$dir/log"
if grep -q -- '--- SKIP' "$dir/log"; then
	echo "$0: a test was skipped" >&2
	exit 1
fi
