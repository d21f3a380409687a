#!/usr/bin/env bash
# Hertz and Kitex, which stand on netpoll, as services and callers: Hertz by HTTP/1.1; Kitex by Thrift
# over TCP in each framing, by gRPC, and with its registry in the etcd of Remora; through one sidecar
# and through two, with hedging; see e2e/peers/cloudwego_*_test.go. Needs Go. Everything listens on
# free ports of 127.0.0.1 and is gone at the end. scripts/differential.sh compares Hertz with net/http.
#
#   scripts/cloudwego.sh            servers stop and start under load ten times as often
#   scripts/cloudwego.sh --short    as CI runs it
#
#   KEEP=DIR   keeps the program in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

long=true
case ${1:-} in
--short) long=false ;;
'') ;;
*)
	echo "usage: scripts/cloudwego.sh [--short]" >&2
	exit 2
	;;
esac
workspace
go build -C scripts/cloudwego -o "$dir/bin/" .

attend_test ./e2e/peers -count=1 -timeout=20m -v -run '^Test(Hertz|Kitex|Cloudwego)' -cloudwego="$dir/bin/cloudwego" -cloudwego-long="$long"
