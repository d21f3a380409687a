#!/usr/bin/env bash
# All tests that need nothing but Go: formatting, vet, staticcheck, the tests
# under the race detector, the allocation tests without it, and a short run of
# every fuzz target. Stops at the first step that fails. The last line is the
# count of Go tests.
#
#   FUZZTIME=2s   how long each fuzz target runs; 0 skips them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# cmd/remora/default.pgo would have all that the sidecar is made of compiled a second time
# for the tests in cmd/remora, and once more with the race detector: 78 s of CPU without
# that. No test depends on it.
export GOFLAGS="${GOFLAGS:-} -pgo=off"

fuzztime=${FUZZTIME:-2s}
logs=$(mktemp -d)
touch "$logs/none.json"

step() { printf '\n== %s\n' "$*"; }

# tests ACTION lists the tests and subtests that ended so, each once: some run
# both with and without the race detector.
tests() {
	sed -n 's/.*"Action":"'"$1"'","Package":"\([^"]*\)","Test":"\(.*\)","Elapsed":.*/\1 \2/p' "$logs"/*.json | sort -u
}

finish() {
	local status=$? passed failed
	tests fail >"$logs/failed"
	tests pass >"$logs/passed"
	failed=$(wc -l <"$logs/failed")
	passed=$(comm -23 "$logs/passed" "$logs/failed" | wc -l)
	# What breaks outside a test (a build, a linter, a fuzz target) is a failure too.
	if ((status != 0 && failed == 0)); then failed=1; fi
	rm -rf "$logs"
	printf '\n%d passed, %d failed\n' "$passed" "$failed"
	exit "$status"
}
trap finish EXIT

# gotest NAME ARG... runs go test, keeps its events as NAME.json, and prints one
# line per package, and what failed when something did.
gotest() {
	local log=$logs/$1.json status=0
	shift
	echo "go test $*"
	go test -json -timeout 60m "$@" >"$log" || status=$?
	if ((status == 0)); then
		output "$log" | grep -E '^(ok|FAIL|panic)' || true
	else
		output "$log" | grep -vE '^ *(=== (RUN|PAUSE|CONT|NAME)|--- (PASS|SKIP))' || true
		return "$status"
	fi
}

# output prints what the events of a log say, as go test would without -json.
output() {
	local text
	sed -n 's/.*"Output":"\(.*\)"[,}].*/\1/p' "$1" | sed -E 's/\\u003c/</g; s/\\u003e/>/g; s/\\u0026/\&/g; s/\\"/"/g' |
		while IFS= read -r text; do printf '%b' "$text"; done
}

step gofmt
unformatted=$(gofmt -l .)
if [[ -n $unformatted ]]; then
	printf 'gofmt -w these files:\n%s\n' "$unformatted"
	exit 1
fi

step go vet
go vet ./...

step staticcheck
go tool staticcheck ./...

step 'tests, with the race detector'
gotest race -race -shuffle=on ./...

step 'allocation tests, without the race detector'
gotest alloc -run Alloc ./...

step 'large meshes, without the race detector, which has no room for them'
gotest large -run 'TestMeshGrows|TestThousandOnThree|TestUnequalReplicas' ./lb

if [[ $fuzztime != 0 ]]; then
	step "fuzz targets, $fuzztime each"
	scripts/fuzz.sh -e "$fuzztime"
fi
