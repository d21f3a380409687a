#!/usr/bin/env bash
# A consumer and a provider of Dubbo 3 that speak Triple, directly, through one sidecar and through
# two: unary calls, exceptions, attachments, deadlines, and streams each way; see
# scripts/triple and TestTriplePeers. Needs Java 17 and Maven. Everything listens on free ports
# of 127.0.0.1 and is gone at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need java mvn
maven -f scripts/triple/pom.xml package
target=$PWD/scripts/triple/target
attend_test ./e2e/peers -count=1 -timeout=10m -v -run '^TestTriplePeers$' -triple-peers "$target/triple.jar:$target/lib/*"
