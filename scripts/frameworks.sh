#!/usr/bin/env bash
# First and later days of services on Flask, FastAPI, Express, Fastify, Spring Boot and Gin, through
# one sidecar and through two: slow starts, idle connections that close, wrong certificates, full
# disks, few descriptors, names, ports and clocks that move, typos, canaries; see
# frameworks/frameworks.py. Needs Go, Python 3 with venv, root for mounts, and without --short also
# Node, npm, Java 17 or later, and Maven. Everything listens on free ports of the loopback addresses
# and is gone at the end. The last line is the count of checks.
#
#   scripts/frameworks.sh            all frameworks
#   scripts/frameworks.sh --short    Flask, FastAPI and Gin, as CI runs it
#
#   DAY=NAME   only days whose function's name has this in it
#   VENV=DIR   keeps the Python environment from run to run
#   KEEP=DIR   keeps programs, configurations and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

here=$PWD/scripts/frameworks
case ${1:-} in
--short | '') ;;
*)
	echo "usage: scripts/frameworks.sh [--short]" >&2
	exit 2
	;;
esac
need curl mount ss unshare
workspace
virtual_python frameworks "$here/requirements.txt"
export PYTHON=$python NODE_APP=$dir/node SPRING_APP=$dir/spring/app.jar
go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
go build -C "$here/go" -o "$dir/bin/gin" .
if [[ -z ${1:-} ]]; then
	need node npm java mvn
	cp -r "$here/node" "$dir"
	npm install --silent --no-audit --no-fund --prefix "$dir/node"
	maven -f "$here/java/pom.xml" -Dtarget="$dir/spring" package
fi
suite 1500 scripts/frameworks/frameworks.py "$@"
