#!/usr/bin/env bash
# Sidecars, and providers and consumers of real Apache Dubbo 3, around a real ZooKeeper, which is killed, paused and loses its
# data under load; and sidecars with an ensemble of three servers, and with TLS. First the tests of registry/zookeeper that need no
# stand-in, against the same ZooKeeper. Needs root, as the providers have addresses of a network namespace.
#
#   scripts/zookeeper-source.sh [--short]
#
#   --short               one server, which restarts, and nothing worse happens
#   ZOOKEEPER_CLASSPATH   the server (default: that of Debian's package zookeeper)
#   RUN=PATTERN           run these tests alone, such as '^TestConsumers$'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh
need java mvn ip unshare
short=()
if [[ ${1:-} == --short ]]; then short=(-test.short -test.skip "^(TestEnsemble|TestTLS)$"); fi

debian=/usr/share/java/zookeeper.jar
if [[ -z ${ZOOKEEPER_CLASSPATH:-} && ! -e $debian ]]; then
	echo "$0: ZooKeeper is missing (apt-get install zookeeper)" >&2
	exit 1
fi
export ZOOKEEPER_CLASSPATH=${ZOOKEEPER_CLASSPATH:-$debian:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar} # the last two for TLS
maven -f lab/java/pom.xml -P dubbo-zookeeper package
export DUBBO_CLASSPATH="$PWD/lab/java/target/zookeeper/lab.jar:$PWD/lab/java/target/zookeeper/lib/*"

workspace
stop() {
	if [[ -n ${server:-} ]]; then kill "$server"; fi
	if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi
}
trap stop EXIT
if [[ -z ${RUN:-} ]]; then
	free_ports port
	printf 'tickTime=500\ndataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n' \
		"$dir/data" "$port" >"$dir/zoo.cfg"
	java -Xmx128m -cp "$ZOOKEEPER_CLASSPATH" org.apache.zookeeper.server.ZooKeeperServerMain "$dir/zoo.cfg" >"$dir/zookeeper.log" 2>&1 &
	server=$!
	await 'ZooKeeper to listen' bash -c ": </dev/tcp/127.0.0.1/$port"
	ZOOKEEPER=127.0.0.1:$port go test -count 1 -v ./registry/zookeeper/... >"$dir/registry.log" || {
		cat "$dir/registry.log"
		exit 1
	}
	# Tests that need the stand-in are skipped. The others must not become few unnoticed.
	passed=$(grep -c '^--- PASS' "$dir/registry.log")
	echo "$passed tests of registry/zookeeper have passed with a real ZooKeeper"
	if ((passed < 50)); then
		echo "$0: at least 50 should have passed" >&2
		exit 1
	fi
fi

go test -c -o "$dir/bin/zookeeper.test" ./e2e/zookeeper
cd e2e/zookeeper
unshare --net bash -c 'ip link set lo up && ip address add 10.222.0.1/16 dev lo && "$@"' - \
	"$dir/bin/zookeeper.test" -test.v "${short[@]}" -test.run "${RUN:-.}" -test.timeout 30m | tee "$dir/log"
if grep -q -- '--- SKIP' "$dir/log"; then
	echo "$0: a test was skipped" >&2
	exit 1
fi
