#!/usr/bin/env bash
# The files in docker/ without a container engine: docker-compose reads them, and
# remora their configurations. Needs docker-compose 1.29 or the docker compose
# plugin, whichever there is. The last line is the count of checks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

compose=(docker-compose)
if ! command -v docker-compose >/dev/null; then compose=(docker compose); fi

passed=0
check() {
	echo "$*"
	"$@"
	passed=$((passed + 1))
}

for file in docker/compose.yaml docker/compose.feature.yaml docker/compose.contest.yaml; do
	check "${compose[@]}" -f "$file" config -q
done
for quotas in docker/compose.contest.*.yaml; do
	check "${compose[@]}" -f docker/compose.contest.yaml -f "$quotas" config -q
done
export NODE=node ADMIN_TOKEN=token POLICY=least_pending WEIGHT=1
for file in docker/config/*.yaml; do
	check go run ./cmd/remora check -c "$file"
done
# Only what this repository builds: an image by another name would be pulled.
for file in docker/compose*.yaml; do
	if grep -E '^ *image:' "$file" | grep -vE 'image: remora(-lab)?$'; then
		echo "$file names an image that is not built here"
		exit 1
	fi
	passed=$((passed + 1))
done
printf '\n%d passed, 0 failed\n' "$passed"
