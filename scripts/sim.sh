#!/usr/bin/env bash
# The simulated meshes in full: every script of proxy/sim/testdata, and random
# meshes. go test runs short forms of both.
#
#   SEEDS=10000   how many random meshes
#   FROM=0        the first seed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../proxy/sim/mesh" # go test shows its output there

go test -count 1 -timeout 60m -run '^TestScenarios$' -full
go test -count 1 -timeout 60m -run '^TestRandomMeshes$' -seeds "${SEEDS:-10000}" -from "${FROM:-0}"
