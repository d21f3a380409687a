#!/usr/bin/env bash
# The simulated meshes in full: every script of proxy/sim/testdata, and random
# meshes. go test runs short forms of both.
#
#   scripts/sim.sh [--short]
#
#   --short       only random meshes
#   SEEDS=10000   how many random meshes
#   FROM=0        the first seed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../proxy/sim/mesh" # go test shows its output there

case ${1:-} in
'') go test -count 1 -timeout 60m -run '^TestScenarios$' -full ;;
--short) ;;
*)
	echo "usage: scripts/sim.sh [--short]" >&2
	exit 2
	;;
esac
go test -count 1 -timeout 60m -run '^TestRandomMeshes$' -seeds "${SEEDS:-10000}" -from "${FROM:-0}"
