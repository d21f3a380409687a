#!/usr/bin/env bash
# gRPC's own interop test through one sidecar and two, between the libraries of Go, Java and
# Python (grpcio), both ways; see e2e/peers/grpc_peers_test.go. Needs Java 17 or later, Maven,
# unzip and Python 3 with venv. Everything listens on free ports of 127.0.0.1 and is gone at the
# end.
#
#   scripts/grpc.sh            every client against every server
#   scripts/grpc.sh --short    each client against one server of another language, as CI runs it
#   scripts/grpc.sh --kill     mixed calls instead, while a provider is killed, drained and hot
#                              restarted; no call may be lost or carried out twice
#
#   CALLS=100000   of --kill
#   WAYS=WAYS      direct, one, two: the ways to the server, with commas between them
#   VENV=DIR       keeps the Python environment from run to run
#   KEEP=DIR       keeps the programs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

if [[ ${1:-} == --kill ]]; then
	exec go test ./e2e/grpc -count=1 -timeout 30m -run '^TestGRPCUnderKills$' -grpc-calls "${CALLS:-100000}" -v
fi
need java mvn unzip
workspace
virtual_python grpc scripts/grpc/requirements.txt

go build -C scripts/grpc -o "$dir/bin/" tool
maven -f scripts/grpc/java/pom.xml package
# The messages of grpcio: without a package, since Python's grpc has its own name.
mkdir -p "$dir/proto"
unzip -joq scripts/grpc/java/target/lib/grpc-interop-testing-*.jar 'grpc/testing/*.proto' -d "$dir/proto"
sed -i 's#import "grpc/testing/#import "#' "$dir"/proto/*.proto
"$python" -m grpc_tools.protoc -I"$dir/proto" --python_out="$dir/proto" --grpc_python_out="$dir/proto" \
	"$dir"/proto/{empty,messages,test}.proto

BIN=$dir/bin PYTHON=$python PYTHONPATH=$dir/proto attend_test ./e2e/peers -count=1 -timeout=30m -v -run '^TestGRPCPeers$' \
	-grpc-peers="${1:---all}" -grpc-ways="${WAYS:-direct,one,two}"
