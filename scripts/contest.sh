#!/usr/bin/env bash
# The contest of Dubbo meshes (docker/README.md) on a container engine that runs: three
# policies with the contest's quotas, with their shares of two cores, and with none. Prints
# one Markdown table. What goes on is on standard error.
#
#   scripts/build.sh --lab
#   scripts/engine.sh scripts/contest.sh [--short] [full] [two-cores] [unlimited]
#
#   --short                     a few seconds for each stage: 80 s for each kind of quotas
#   full, two-cores, unlimited  these quotas alone: 12 minutes each
#
# Needs docker-compose 1.29 or the docker compose plugin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

export WARMUP=30s DURATION=60s
limit=360 # seconds for a run, with its start
if [[ ${1:-} == --short ]]; then
	export WARMUP=2s DURATION=3s
	limit=120
	shift
fi
if (($# == 0)); then set -- full two-cores unlimited; fi
for quotas in "$@"; do
	case $quotas in
	full | two-cores | unlimited) ;;
	*) echo "contest: unknown argument $quotas; see the head of $0" >&2 && exit 2 ;;
	esac
done
need docker
if ! docker info &>/dev/null; then
	echo 'contest: no container engine answers' >&2
	exit 1
fi
compose=(docker-compose)
if ! command -v docker-compose >/dev/null; then compose=(docker compose); fi
compose+=(-p contest -f docker/compose.contest.yaml)

"${compose[@]}" build >&2
trap '"${compose[@]}" down &>/dev/null' EXIT

# run QUOTAS COMPOSE-OPTION... prints the rows of each policy.
run() {
	local quotas=$1 choice
	shift
	for choice in 'least_pending 1 1 1' 'weighted_round_robin 1 2 3' 'peak_ewma 1 1 1'; do
		read -r POLICY WEIGHT_SMALL WEIGHT_MEDIUM WEIGHT_LARGE <<<"$choice"
		export POLICY WEIGHT_SMALL WEIGHT_MEDIUM WEIGHT_LARGE
		"${compose[@]}" down &>/dev/null # its log would be added to
		attend_for "$limit" "${compose[@]}" "$@" up --abort-on-container-exit --exit-code-from load >&2
		"${compose[@]}" logs --no-color --no-log-prefix load |
			awk -F ' *[|] *' -v start="| $quotas | $POLICY $WEIGHT_SMALL:$WEIGHT_MEDIUM:$WEIGHT_LARGE" '
				$2 ~ /^[0-9]+$/ {
					printf "%s | %s | %s | %s | %s | %s | %s | %s | %.1f | %s |\n", start, $2, $3, $4, $5, $6, $7, $9, $10 + $11 + $12, $8
					rows++
				}
				END { exit rows != 3 }'
	done
}

cat <<'END'
| quotas | policy, weights | connections | QPS | ceiling | share | p50 ms | p99 ms | consumer CPU µs | providers CPU µs | errors |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
END
for quotas in "$@"; do
	case $quotas in
	full) run "the contest's" ;;
	two-cores) run 'of 2 cores' -f docker/compose.contest.two-cores.yaml ;;
	unlimited) run none -f docker/compose.contest.unlimited.yaml ;;
	esac
done
