#!/usr/bin/env bash
# The simulated meshes in full: every script of proxy/sim/testdata, and random
# meshes. go test runs short forms of both.
#
#   SEEDS=10000   how many random meshes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

go run ./scripts/scenarios
go run ./scripts/seeds -n "${SEEDS:-10000}"
