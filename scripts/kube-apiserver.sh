#!/usr/bin/env bash
# Builds a Kubernetes API server from its Go module, unless it is there already: some minutes on two cores.
#
#   scripts/kube-apiserver.sh FILE
set -euo pipefail
file=$(realpath -m "$1")
[[ -x $file ]] && exit

version=v1.36.3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS=''
# Kubernetes names its parts by v0.0.0, and has them beside itself. Here they are modules of their own.
go mod init apiserver >/dev/null 2>&1
mod=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
while read -r part; do
	go mod edit -replace "$part=$part@v0${version#v1}"
done < <(sed -n 's/^\t\(k8s\.io\/[^ ]*\) v0\.0\.0\( .*\)\?$/\1/p' "$mod")
go mod edit -require "k8s.io/kubernetes@$version" -tool k8s.io/kubernetes/cmd/kube-apiserver
go mod tidy >/dev/null 2>&1
mkdir -p "$(dirname "$file")"
go build -trimpath -ldflags '-s -w' -o "$file" k8s.io/kubernetes/cmd/kube-apiserver
