#!/usr/bin/env bash
# Makes cmd/remora/default.pgo anew: CPU profiles of sidecars under the loads of
# scripts/pgo/profiles.py, by which "go build" optimises the sidecar. It then counts,
# by callgrind, the instructions per request that this spares.
#
#   scripts/pgo.sh [--seconds N]   N is of each load's profile (default 15)
#   scripts/pgo.sh --check         only counts; ends with 1 if the profile has grown
#                                  so old that it spares next to nothing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

die() { echo "pgo: $*" >&2; exit 1; }

for tool in go python3 wrk openssl valgrind; do
	command -v "$tool" >/dev/null || die "$tool is missing (apt-get install wrk openssl valgrind python3)"
done

profile=$PWD/cmd/remora/default.pgo
workspace
export PYTHONPATH=$PWD/scripts/interop:$PWD/scripts/bench:$PWD/scripts/tail

if [[ ${1:-} != --check ]]; then
	# Without the profile of before, by which functions are inlined: the same code is to
	# give the same profile. With -trimpath, functions have no paths of this machine.
	CGO_ENABLED=0 go build -trimpath -pgo=off -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
	mkdir -p "$dir/profiles"
	attend python3 -B scripts/pgo/profiles.py --binaries "$dir/bin" --out "$dir/profiles" "$@"
	# A program that is named replaces the path of the one that ran.
	(cd "$dir/bin" && go tool pprof -symbolize=none -proto -output "$dir/merged" remora "$dir"/profiles/*.pprof)
	gzip -cd "$dir/merged" >"$dir/plain"
	if grep -aqF -e "$PWD" -e "$dir" -e "$HOME/" "$dir/plain"; then die "the profile has paths of this machine"; fi
	cp "$dir/merged" "$profile"
fi

go test -c -pgo=off -o "$dir/bin/without" ./proxy
go test -c -pgo="$profile" -o "$dir/bin/with" ./proxy
attend python3 -B scripts/pgo/gain.py --binaries "$dir/bin" --limits scripts/cost.limits
