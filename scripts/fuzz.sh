#!/usr/bin/env bash
# Runs every fuzz target, one after another, and reports for each how many inputs
# were tried, how many of them were new (reached code that none had reached
# before) and whether one failed. A failing input is written to testdata/fuzz of
# its package, where every later "go test" runs it: mend the code and commit it.
#
#   scripts/fuzz.sh [-e] DURATION [REGEXP]
#
#   DURATION   such as 90s, 30m or 1h: how long all targets take together
#   -e         DURATION is how long each of them takes
#   REGEXP     of "package target": only those that match
#   WORKERS    how many inputs are tried at a time; default: one per CPU
#
# What is new is kept in Go's build cache, and the next run begins with it. Ends
# with 1 when a target failed, or nothing was tried. FUZZLOG=DIR keeps the output of each target.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

each=false
if [[ ${1:-} == -e ]]; then
	each=true
	shift
fi
if [[ ! ${1:-} =~ ^([0-9]+)([smh])$ ]]; then
	sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
	exit 2
fi
declare -A unit=([s]=1 [m]=60 [h]=3600)
seconds=$((BASH_REMATCH[1] * unit[${BASH_REMATCH[2]}]))
only=${2:-.}
workers=${WORKERS:-$(nproc)}
logs=${FUZZLOG:-$(mktemp -d)}
mkdir -p "$logs"
[[ -n ${FUZZLOG:-} ]] || trap 'rm -rf "$logs"' EXIT

# targets lists "package target" for each fuzz target.
targets() {
	grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . |
		sed -E 's|/[^/]*_test.go:func | |' | sort
}

# fuzz PACKAGE TARGET SECONDS LOG runs one target. Go's fuzzer sometimes fails with
# the deadline of its own -fuzztime (golang/go#75804, mended in Go 1.27); whatever
# it finds, it writes down first.
fuzz() {
	# Minimizing what is merely interesting would eat the whole time.
	go test -run '^$' -fuzz "^$2\$" -fuzztime "$3s" -fuzzminimizetime 10x -parallel "$workers" "$1" >"$4" 2>&1 && return
	grep -qFx '    context deadline exceeded' "$4" && ! grep -qF 'Failing input written' "$4"
}

targets | grep -E -- "$only" >"$logs/targets" || { echo "no fuzz target matches $only" >&2; exit 2; }
count=$(wc -l <"$logs/targets")
$each || seconds=$((seconds > count ? seconds / count : 1))

printf '%d targets, %d s each, %d at a time\n\n' "$count" "$seconds" "$workers"
printf '%-58s %12s %6s %6s  %s\n' target executions new corpus outcome
executions=0 new=0 idle=0 failed=0
while read -r package target; do
	name=${package#./}.$target log=$logs/${package##*/}.$target outcome=ok
	fuzz "$package" "$target" "$seconds" "$log" || { outcome=FAILED; failed=$((failed + 1)); }
	read -r tried found corpus < <(
		sed -nE 's/.*execs: ([0-9]+) .*new interesting: ([0-9]+) \(total: ([0-9]+)\).*/\1 \2 \3/p' "$log" | tail -n 1
		echo 0 0 0
	)
	executions=$((executions + tried)) new=$((new + found))
	# All its time went by with what is known already.
	if [[ $outcome == ok ]] && ((tried == 0)); then outcome='no time' idle=$((idle + 1)); fi
	printf '%-58s %12d %6d %6d  %s\n' "$name" "$tried" "$found" "$corpus" "$outcome"
	[[ $outcome != FAILED ]] || sed 's/^/    /' "$log"
done <"$logs/targets"
printf '\n%d targets, %d executions, %d new inputs, %d without time, %d failed\n' "$count" "$executions" "$new" "$idle" "$failed"
((failed == 0 && executions > 0))
