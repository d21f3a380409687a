#!/usr/bin/env bash
# All suites in their long forms, on a fresh clone with Go installed and no terminal:
# some hours on two cores. A suite that fails does not keep the others from running. The
# last line is the count of suites; the status is 1 if one failed.
#
#   FUZZ=1h    how long all fuzz targets run together
#   SOAK=30m   how long the soak has traffic
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

scripts/install.sh --all

passed=0 failed=() left_out=()
# suite COMMAND... runs a suite, and prints how long it took.
suite() {
	local start=$SECONDS
	printf '\n==== %s\n' "$*"
	if "$@"; then passed=$((passed + 1)); else failed+=("$*"); fi
	printf '==== %s s, %s s in all\n' $((SECONDS - start)) "$SECONDS"
}

suite env FUZZTIME=0 scripts/test.sh --long
suite scripts/fuzz.sh "${FUZZ:-1h}"
suite scripts/oss-fuzz.sh 2
suite env SEEDS=100000 scripts/sim.sh
# Another part of the matrix each night: all of it in two months.
suite go test ./proxy/sim/queues -count 1 -timeout 0 -run '^TestMatrix$' -every 61 -from $((10#$(date +%j) % 61))
for name in compose-check cost interop interop-dubbo triple grpc connect cloudwego http2 http-cache http-proxy sslyze streams tracing dashboard; do
	suite "scripts/$name.sh"
done
for name in http2 grpc streams reload attack; do
	suite env ENGINE=gnet "scripts/$name.sh"
done
suite env ENGINE=gnet scripts/soak.sh 10m
suite scripts/attack.sh 4s
suite scripts/soak.sh --kill
suite scripts/versions.sh
suite scripts/grpc.sh --kill
suite scripts/restart.sh 100
suite scripts/restart.sh --changes 5000000
suite scripts/restart.sh --kills 20
suite scripts/reload.sh 100
suite scripts/history.sh 300
# Root may not be the repository's owner: then Go must not ask git for its state.
privileged=(env PATH="$PATH" GOFLAGS=-buildvcs=false)
if ((EUID != 0)); then privileged=(sudo "${privileged[@]}"); fi
suite "${privileged[@]}" scripts/intercept-test.sh
suite "${privileged[@]}" scripts/chaos.sh
suite "${privileged[@]}" scripts/chaos.sh --together --minutes 60 --seed "$(date +%Y%j000)"
suite "${privileged[@]}" scripts/sources.sh
suite "${privileged[@]}" scripts/zookeeper-source.sh
suite "${privileged[@]}" scripts/frameworks.sh
suite "${privileged[@]}" scripts/strictness.sh
suite "${privileged[@]}" scripts/differential.sh
suite "${privileged[@]}" scripts/autobahn.sh
suite scripts/soak.sh "${SOAK:-30m}"
suite scripts/build.sh --lab --check
if "${privileged[@]}" scripts/engine.sh true; then
	suite "${privileged[@]}" scripts/engine.sh scripts/contest.sh --short
	suite "${privileged[@]}" scripts/engine.sh docker-compose -p feature -f docker/compose.yaml up --build --exit-code-from api
else
	left_out+=('both compose files: no container runs')
fi
if scripts/vulnerabilities.sh --reachable; then
	suite scripts/vulnerabilities.sh
else
	left_out+=('vulnerabilities: the database is out of reach')
fi
suite "${privileged[@]}" scripts/packages.sh
suite "${privileged[@]}" scripts/unit.sh
suite scripts/kubernetes.sh
suite scripts/mutate.sh --seed "$(date +%-j)" proxy/allow
suite scripts/pgo.sh --check

if ((${#left_out[@]} > 0)); then printf '\nleft out: %s' "${left_out[@]}"; echo; fi
if ((${#failed[@]} > 0)); then printf '\nfailed: %s' "${failed[@]}"; echo; fi
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "${#failed[@]}" "${#left_out[@]}"
((${#failed[@]} == 0))
