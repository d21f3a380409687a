#!/usr/bin/env bash
# Makes cmd/remora/default.pgo: CPU profiles of sidecars under the loads of
# scripts/pgo/profiles.py, by which "go build" optimises the sidecar. It then counts,
# by callgrind, the instructions per request that the profile saves.
#
#   scripts/pgo.sh [--seconds N]   N is of each load's profile (default 15)
#   scripts/pgo.sh --check         only counts; ends with 1 if the profile has grown
#                                  so old that it spares next to nothing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

die() { echo "pgo: $*" >&2; exit 1; }

need go python3 wrk openssl valgrind
profile=$PWD/cmd/remora/default.pgo
workspace

if [[ ${1:-} != --check ]]; then
	# Without the present profile, which decides on inlining: the same code must give the
	# same profile. With -trimpath, functions have no paths of this machine.
	CGO_ENABLED=0 go build -trimpath -pgo=off -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
	mkdir -p "$dir/profiles"
	seconds=15
	if [[ ${1:-} == --seconds ]]; then seconds=$2; fi
	suite 3600 scripts/pgo/profiles.py "$seconds" "$dir/profiles"
	# A program that is named replaces the path of the one that ran.
	(cd "$dir/bin" && go tool pprof -symbolize=none -proto -output "$dir/merged" remora "$dir"/profiles/*.pprof)
	gzip -cd "$dir/merged" >"$dir/plain"
	if grep -aqF -e "$PWD" -e "$dir" -e "$HOME/" "$dir/plain"; then die "the profile has paths of this machine"; fi
	cp "$dir/merged" "$profile"
fi

go test -c -pgo=off -o "$dir/bin/without" ./proxy
go test -c -pgo="$profile" -o "$dir/bin/with" ./proxy
BIN=$dir/bin go test -count=1 -v -timeout 60m -run "^TestProfile$" ./internal/cost
