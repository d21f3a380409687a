#!/usr/bin/env bash
# Runs a command with a container engine: with the one that answers, else with one of its
# own. That has its network and its data to itself, so that nothing of it is left.
#
#   scripts/engine.sh COMMAND...
#
# Needs of Debian's packages docker.io, iproute2 and util-linux, and root for its own.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if docker info &>/dev/null; then
	attend "$@"
	exit
fi
fail() { echo "engine: no container engine answers, and none starts: $*" >&2 && exit 1; }
need docker dockerd ip unshare
((EUID == 0)) || fail 'that needs root'

dir=$(mktemp -d)
export DOCKER_HOST=unix://$dir/socket
# shellcheck disable=SC2016 # the inner shell's arguments
unshare --net --mount sh -c 'ip link set lo up && exec "$@"' sh dockerd --host "$DOCKER_HOST" \
	--data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" &>"$dir/log" &
engine=$!
trap 'kill "$engine" 2>/dev/null && wait "$engine" || true; rm -rf "$dir"' EXIT
for ((tries = 0; ; tries++)); do
	if docker info &>/dev/null; then break; fi
	if ((tries == 60)) || ! kill -0 "$engine" 2>/dev/null; then fail "$(tail -n 3 "$dir/log")"; fi
	sleep 1
done
attend "$@"
