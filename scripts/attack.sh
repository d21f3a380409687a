#!/usr/bin/env bash
# Attacks on real processes, each beside a well-behaved load: no other request may fail, memory
# stays within its bound, and nothing is left behind.
#
#   scripts/attack.sh         each attack for 600 ms, or until its limit has stopped it
#   scripts/attack.sh 4s      each for 4 s, and each way to hold memory alone: the nightly form, an hour
set -euo pipefail
cd "$(dirname "$0")/.."

REMORA_ATTACK=${1:-600ms} go test ./e2e/attacks ./e2e/limits ./e2e/routing ./cmd/remora/... -p 1 -count=1 -timeout=2h -v \
	-run '^Test(Attacks|HTTP2Attacks|Holders|HoldersAlone|LinkCrowds|SlowStreams|TLSAttacks|AdminConnections|DescriptorReserve|DescriptorsBehindLink|Overload.*|Paths|TopPrintsNoControlSequences|OutputIsPrintable)$' |
	grep -v '^=== '
