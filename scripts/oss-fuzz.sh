#!/usr/bin/env bash
# Builds the fuzz targets by oss-fuzz/build.sh, as OSS-Fuzz does, and runs each for some seconds from
# its seeds and with its dictionary. The builder of OSS-Fuzz is an image; a program of
# scripts/oss-fuzz stands in for its compile_native_go_fuzzer_v2. Needs Go, and of Debian's packages
# clang, unzip and zip. The last line is the count of targets.
#
#   scripts/oss-fuzz.sh [SECONDS [REGEXP]]
#
#   SECONDS    how long each target runs; default 2
#   REGEXP     of "package target": only those that match
#   KEEP=DIR   keeps the programs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need clang git unzip zip
workspace
seconds=${1:-2} out=$dir/out source=$dir/source
rm -rf "$out" "$source" "$dir/corpus" # of the last time
mkdir -p "$out" "$source" "$dir/corpus"
git ls-files --cached --others --exclude-standard | tar --create --files-from - | tar --extract --directory "$source"
(cd "$source" && OUT=$out ONLY=${2:-.} PATH=$source/scripts/oss-fuzz:$PATH GOFLAGS="-buildvcs=false -trimpath" oss-fuzz/build.sh)

passed=0 failed=0
for program in "$out"/*; do
	name=${program##*/} options=()
	if [[ ! -x $program ]]; then continue; fi
	unzip -q "$out/${name}_seed_corpus.zip" -d "$dir/corpus/$name"
	seeds=$(find "$dir/corpus/$name" -type f | wc -l)
	if [[ -e $program.dict ]]; then options=(-dict="$program.dict"); fi
	# OSS-Fuzz runs them without the repository.
	if (cd "$dir" && attend_for $((seconds + 300)) "$program" "${options[@]}" -max_total_time="$seconds" -print_final_stats=1 "$dir/corpus/$name") >"$dir/$name.log" 2>&1; then
		passed=$((passed + 1))
		printf 'ok   %s: %s seeds, %s inputs\n' "$name" "$seeds" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$dir/$name.log")"
	else
		failed=$((failed + 1))
		printf 'FAIL %s: %s seeds\n' "$name" "$seeds"
		tail -n 40 "$dir/$name.log"
	fi
done
printf '%d passed, %d failed\n' "$passed" "$failed"
((failed == 0 && passed > 0))
