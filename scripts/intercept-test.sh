#!/usr/bin/env bash
# Programs that know nothing of Remora, behind intercept.sh: see internal/intercept. It
# makes two network namespaces, joined by a veth pair, and removes them again; nothing
# else of this host changes. Needs root, Go, curl, Java 17 or later, Node, Python 3, and
# of Debian's packages iptables, iproute2, util-linux and redis-server. A missing program
# is a failure. The last line is the count of checks.
#
#   CALLS=N    HTTP calls of each program and kind of address; default 100
#   KEEP=DIR   keep configuration files and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need curl go ip ip6tables iptables java node python3 redis-server setpriv
if ((EUID != 0)); then
	echo 'intercept-test.sh: needs root, to make network namespaces' >&2
	exit 1
fi

workspace
chmod 755 "$dir" "$dir/bin" # Remora runs as a user of its own

CGO_ENABLED=0 go build -o "$dir/bin/" ./cmd/remora
go test -c -o "$dir/bin/intercept.test" ./internal/intercept
dir=$(realpath "$dir")
cd internal/intercept
attend_for 900 "$dir/bin/intercept.test" -test.v -dir "$dir" -calls "${CALLS:-100}"
