#!/usr/bin/env bash
# gRPC's interop test server or client in one of its languages. scripts/grpc.sh has built them.
#
#   peer.sh LANGUAGE server PORT
#   peer.sh LANGUAGE client PORT CASE...    a line "ok CASE" or "FAIL CASE WHY" for each
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
java=(java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$here/java/target/peer.jar:$here/java/target/lib/*")
package=io.grpc.testing.integration
python=("${PYTHON:-python3}" -B "$here/peer.py")
# Its policy is pick_first, and it shows the load that a server reports.
config='{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}'

case "$1 $2" in
"go server") exec "$BIN/server" -port="$3" ;;
"java server") exec "${java[@]}" "$package.TestServiceServer" --port="$3" --use_tls=false ;;
"grpcio server") exec "${python[@]}" serve "$3" ;;
"java client") exec "${java[@]}" "$package.Cases" "${@:3}" ;;
"grpcio client") exec "${python[@]}" call "${@:3}" ;;
"go client")
	for name in "${@:4}"; do
		if why=$("$BIN/client" -use_tls=false -server_host=127.0.0.1 -server_port="$3" -service_config_json="$config" -test_case="$name" 2>&1); then
			echo "ok $name"
		else
			echo "FAIL $name ${why##*$'\n'}"
		fi
	done
	;;
esac
