#!/usr/bin/env bash
# TLS between Remora and other programs: curl, openssl, nginx, HAProxy and Java call its
# listeners, and it calls their servers. Right and wrong names, certificates that are expired,
# untrusted or missing, TLS 1.2 and 1.3, certificates by name, and resumed sessions.
#
# Needs Go, Java 17 or later, and of Debian's packages curl, openssl, nginx and haproxy, found in
# PATH and /usr/sbin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

export PATH=$PATH:/usr/sbin
need curl openssl nginx haproxy java javac keytool
go test ./e2e/peers -count=1 -timeout=10m -v -run '^TestTLSPeers' -tls-peers
