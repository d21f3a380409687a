#!/usr/bin/env bash
# Looks for known vulnerabilities in what the programs call, of their modules and of Go, by govulncheck.
# Fails if there is one, and if the database can't be reached: nothing was looked for then.
#
#   scripts/vulnerabilities.sh [--reachable]
#
#   --reachable   only reports whether the database can be reached
#   VULNDB=URL    the database; default https://vuln.go.dev. Of a file: URL it is a folder, such as
#                 data/osv in a clone of github.com/golang/vulndb
#
# Needs Go and curl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

database=${VULNDB:-https://vuln.go.dev}
reachable() {
	case $database in
	file://*) [[ -d ${database#file://} ]] ;;
	*) curl --fail --silent --show-error --max-time 60 --output /dev/null "$database/index/db.json" ;;
	esac
}
if ! reachable; then
	echo "$0: nothing was looked for: $database can't be reached" >&2
	exit 1
fi
if [[ ${1:-} != --reachable ]]; then exec go tool govulncheck -db "$database" ./...; fi
