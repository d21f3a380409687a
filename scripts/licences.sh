#!/usr/bin/env bash
# Prints the licences of all that programs of this module are made of besides the module itself: of Go, and of each module
# that they have compiled in. Ends with 1 if one has no licence.
#
#   scripts/licences.sh PROGRAM...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# part NAME FOLDER prints the files of a folder that have terms.
part() {
	local files file
	mapfile -t files < <(find "$2" -maxdepth 1 -type f -iregex '.*/\(licen[sc]e\|copying\|notice\)\(\.txt\|\.md\)?' | sort)
	if ((${#files[@]} == 0)); then
		echo "licences: $1 has none in $2" >&2
		exit 1
	fi
	for file in "${files[@]}"; do
		printf '\n==== %s: %s\n\n' "$1" "$(basename "$file")"
		cat "$file"
	done
}

echo 'Remora holds parts of other projects, under their own terms.'
part "Go $(go env GOVERSION)" "$(go env GOROOT)"
for program in "$@"; do go version -m "$program"; done | awk '$1 == "dep" { print $2, $3 }' | sort -u |
	while read -r module version; do
		part "$module $version" "$(go list -m -f '{{.Dir}}' "$module")"
	done
