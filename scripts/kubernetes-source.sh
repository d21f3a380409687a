#!/usr/bin/env bash
# A sidecar whose endpoints are in a real Kubernetes API server, which dies, loses its data and comes back, while replicas
# come and go under load. Needs root, as the replicas have addresses of a network namespace.
#
#   SECONDS_OF_CHURN=60   how long replicas come and go
#   KUBE_APISERVER        the API server (default: built once, and kept in the user's cache)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh
need ip unshare

export KUBE_APISERVER=${KUBE_APISERVER:-${XDG_CACHE_HOME:-$HOME/.cache}/remora-kube/kube-apiserver-v1.36.3}
scripts/kube-apiserver.sh "$KUBE_APISERVER"
workspace
go test -c -o "$dir/bin/kubernetes.test" ./e2e/kubernetes
cd e2e/kubernetes
unshare --net bash -c 'ip link set lo up && ip route add local 10.222.0.0/16 dev lo && "$@"' - \
	"$dir/bin/kubernetes.test" -test.v -test.timeout 20m | tee "$dir/log"
if grep -q -- '--- SKIP' "$dir/log"; then
	echo "$0: a test was skipped" >&2
	exit 1
fi
