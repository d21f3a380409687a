#!/usr/bin/env bash
# Sends the requests of protocol/http1/testdata and e2e/strictness/testdata/differential
# through Remora, one hop and two, to other servers, each of which responds with what it
# saw. Fails when a server saw something else than Remora sent and
# e2e/strictness/testdata/differential/differences.txt does not say why, when requests and
# responses are not one for one, or when a request gets the response of another.
#
#   scripts/differential.sh [--short]
#
#   --short    only servers of Debian's packages, net/http and Hertz
#
# Needs Go, and of Debian's packages those that install.sh names for it, found in PATH and
# /usr/sbin. Without --short, needs Maven and Java 17 (Jetty, Tomcat), and venv
# (differential/requirements.txt), too; scripts/peers.sh brings newer versions of nginx and HAProxy.
#
#   VENV=DIR   keeps that Python environment from run to run
#   PEERS=DIR  keeps the newer nginx and HAProxy from run to run; default in the user's cache
#   KEEP=DIR   keeps the program of Hertz in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

export PATH=$PATH:/usr/sbin DIFFERENTIAL_PYTHON=/usr/bin/python3
need nginx haproxy apache2 lighttpd node
workspace
go build -C scripts/cloudwego -o "$dir/bin/" .
export DIFFERENTIAL_HERTZ=$dir/bin/cloudwego
servers=short
case ${1:-} in
--short) ;;
'')
	servers=whole
	need java mvn
	virtual_python differential scripts/differential/requirements.txt
	peers=$(realpath -m "${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/remora-peers}")
	scripts/peers.sh "$peers"
	maven -f scripts/differential/java/pom.xml package
	target=$PWD/scripts/differential/java/target
	export DIFFERENTIAL_PEERS=$peers/bin DIFFERENTIAL_VENV=$python DIFFERENTIAL_JAVA="$target/classes:$target/lib/*"
	;;
*)
	echo "usage: scripts/differential.sh [--short]" >&2
	exit 2
	;;
esac
attend_test ./e2e/strictness -count=1 -timeout=20m -v -run '^TestDifferential' -differential "$servers"
