#!/usr/bin/env bash
# Remora between consumers and providers of real Apache Dubbo, and between HTTP
# and those; see interop-dubbo/dubbo.py and lab/java. Needs Java 17, Maven and
# Python 3. Everything listens on free ports of 127.0.0.1 and is gone at the end.
# The last line is the count of checks.
#
#   IDLE=60      seconds of silence, beside the other cases, in which heartbeats keep
#                connections up
#   KEEP=DIR     keep configuration files and logs in DIR
#   CASES=NAMES  run these alone: patterns with commas between them, such as
#                'http/*-2.7,pool'; one that matches nothing lists the cases
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need java mvn
workspace

for line in 2.7 3.3; do
	maven -f lab/java/pom.xml -P "dubbo-$line" package
done

go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
suite 1800 scripts/interop-dubbo/dubbo.py "${IDLE:-60}" "${CASES:-*}"
