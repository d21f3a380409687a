#!/usr/bin/env bash
# Runs a command again and again on a busy machine, and counts how often it fails: beside as many busy loops as there are
# cores, at the same priority. Each second run has only one thread for Go code (GOMAXPROCS=1). A test that fails here and not
# on a quiet machine is mended at its cause. The status is 1 if a run failed.
#
#   scripts/flaky.sh [--runs N] [--loops N] COMMAND...
#
#   scripts/flaky.sh scripts/test.sh
#   scripts/flaky.sh --runs 5 scripts/reload.sh
#
#   --runs N    default 20
#   --loops N   default: the number of cores
#   OUT=DIR     keeps the output of each run that failed there (default: a new directory, which it names)
set -euo pipefail

runs=20 loops=$(nproc)
while [[ ${1:-} == --* ]]; do
	case $1 in
	--runs) runs=${2:?} ;;
	--loops) loops=${2:?} ;;
	*) echo "flaky: unknown option $1; see the head of $0" >&2 && exit 2 ;;
	esac
	shift 2
done
if (($# == 0)); then echo "flaky: no command; see the head of $0" >&2 && exit 2; fi

out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true' EXIT
for ((i = 0; i < loops; i++)); do
	while :; do :; done &
	busy+=($!)
done

failed=0
for ((run = 1; run <= runs; run++)); do
	threads=()
	if ((run % 2 == 0)); then threads=(GOMAXPROCS=1); fi
	began=$SECONDS
	if env "${threads[@]}" "$@" </dev/null >"$out/$run" 2>&1; then
		result=passed
		rm "$out/$run"
	else
		result="failed: see $out/$run"
		failed=$((failed + 1))
	fi
	echo "run $run of $runs ${threads[*]}: $((SECONDS - began)) s, $result"
done
echo "$failed of $runs failed"
((failed == 0))
