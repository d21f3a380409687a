#!/usr/bin/env bash
# All tests that need nothing but Go: formatting, vet, staticcheck, the tests, and a
# short run of every fuzz target, in some 15 minutes on two cores. Stops at the first
# step that fails. The last line is the count of Go tests.
#
#   scripts/test.sh [--long]
#
#   --long        run all tests with the race detector and in their long form, as
#                 scripts/nightly.sh does
#   FUZZTIME=1s   how long each fuzz target runs; 0 skips them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

long=false
case ${1:-} in
'') ;;
--long) long=true ;;
*)
	echo "usage: scripts/test.sh [--long]" >&2
	exit 2
	;;
esac

# cmd/remora/default.pgo would have all that the sidecar is made of compiled a second time
# for the tests in e2e, and once more with the race detector: 78 s of CPU without that. No
# test depends on it.
export GOFLAGS="${GOFLAGS:-} -pgo=off"

# Only the race detector needs cgo. All else is compiled without cgo, as a release is.
export CGO_ENABLED=0

# At its end a program with the race detector sleeps for a second, by default. Tests start hundreds.
export GORACE=${GORACE:-atexit_sleep_ms=0}

fuzztime=${FUZZTIME:-1s}
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
	printf 'go test %.160s\n' "$*"
	go test -json -timeout 60m "$@" >"$log" || status=$?
	if ((status == 0)); then
		output "$log" | grep -E '^(ok|FAIL|panic)' || true
	else
		output "$log" | grep -vE '^ *(=== (RUN|PAUSE|CONT|NAME)|--- (PASS|SKIP))' || true
		return "$status"
	fi
}

# race NAME ARG... is gotest with the race detector.
race() { CGO_ENABLED=1 gotest "$1" -race -shuffle=on "${@:2}"; }

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

# vet is done; go test would do part of it again.
export GOFLAGS="$GOFLAGS -vet=off"

# The core runs on one goroutine, of a driver or of the simulator, and archtest forbids
# it to start others. The race detector finds nothing there, and takes six times the CPU.
core='proxy|proxy/(sim/(mesh|queues)|proxytest|loop|fault|route|shard|mux|limit|exchange|upstream|downstream|filter|caching)(/.+)?'
core+='|proxy/(race|service|fifo|affinity|allow|identity|forwarded|hedge(/.+)?|telemetry/stats|telemetry/trace)|(lb|protocol)(/.+)?'

module=$(go list -m)
all=$(go list ./...)
core_packages=$(grep -xE "$module/($core)" <<<"$all")
other_packages=$(grep -vxE "$module/($core)" <<<"$all")

# tests_in FILE... lists the tests of these files, as a pattern for -run.
tests_in() { sed -nE 's/^func (Test[A-Za-z0-9_]+)\(.*/\1/p' "$@" | paste -sd '|'; }

# test_files PATTERN PACKAGE... lists the test files of packages in which a line matches.
test_files() {
	local pattern=$1
	shift
	go list -f '{{$d := .Dir}}{{range .TestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}' "$@" |
		sed '/^$/d' | xargs grep -lE -- "$pattern" || true
}

# packages_of FILE... lists their folders.
packages_of() { dirname "$@" | sort -u; }

# The allocation tests have a step of their own: what other tests leave in shared pools of
# buffers would count.
allocations='^Test.*Alloc'
# Two break the code, one rule at a time, to see that the tests notice; TestMeshGrows takes
# half a minute of CPU.
slow='^(TestFaultsAreCaught|TestMutants|TestMeshGrows)$'
# Long series of simulations, which have a shorter form: scripts/sim.sh and scripts/nightly.sh
# have more of them.
simulations='/(lb|proxy/exchange|proxy/sim/(mesh|queues))$'

# Attacks take all CPU time that there is, and no request of a well-behaved load may fail
# beside them: other tests would take the rest.
alone=$module/e2e/attacks

if $long; then
	step 'all tests, with the race detector'
	# shellcheck disable=SC2046 # one word for each package
	race race $(grep -vx "$alone" <<<"$all")

	step 'attacks on real processes, with the race detector'
	race attacks "$alone"

	step 'the core, without the race detector'
	# shellcheck disable=SC2086 # one word for each package
	gotest core -shuffle=on -skip "$allocations" $core_packages
else
	step 'the drivers and all that starts goroutines, with the race detector'
	# Most of these tests wait for sockets and processes: twice as many packages as there are cores.
	# shellcheck disable=SC2046
	race race -short -p $((2 * $(nproc))) $(grep -vx "$alone" <<<"$other_packages")

	step 'attacks on real processes'
	# The race detector slows the sidecars so much that some bounds do not hold: --long has it.
	gotest attacks -short -shuffle=on "$alone"

	step 'tests of the core that start goroutines, with the race detector'
	# shellcheck disable=SC2086
	files=$(test_files '^[[:space:]]+go |\.Go\(' $core_packages)
	if [[ -n $files ]]; then
		# shellcheck disable=SC2046,SC2086
		race concurrent -run "^($(tests_in $files))\$" $(packages_of $files)
	fi

	step 'the core, without the race detector'
	# shellcheck disable=SC2046
	gotest core -shuffle=on -skip "$allocations|$slow" $(grep -vE "$simulations" <<<"$core_packages")
	# shellcheck disable=SC2046
	gotest simulations -short -shuffle=on -skip "$allocations|$slow" $(grep -E "$simulations" <<<"$core_packages")
fi

# All of the above had the default engine.
step 'the conformance suite and the drivers on gnet, with the race detector'
ENGINE=gnet race gnet -short -skip "$allocations" ./proxy/reactor

step 'allocation tests, without the race detector'
# shellcheck disable=SC2086
files=$(test_files '^func Test[A-Za-z0-9_]*Alloc' $all)
# shellcheck disable=SC2046,SC2086
gotest alloc -run "$allocations" $(packages_of $files)
ENGINE=gnet gotest alloc-gnet -run "$allocations" ./proxy/reactor

if [[ $fuzztime != 0 ]]; then
	step "fuzz targets, $fuzztime each"
	scripts/fuzz.sh -e "$fuzztime"
fi
