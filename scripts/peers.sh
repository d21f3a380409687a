#!/usr/bin/env bash
# Brings HAProxy and nginx of Debian's development branch, which are newer than the installed
# ones, and writes programs that run them to DIR/bin. Needs debootstrap, root and the network, the
# first time. `newest` in lab/bench/tools.go has the releases that the bench expects.
#
#   scripts/peers.sh DIR
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

dir=$(realpath -m "${1:?DIR}")
debian sid "$dir/root" haproxy nginx-core
mkdir -p "$dir/bin"
for name in haproxy nginx; do debian_program "$dir/root" "usr/sbin/$name" "$dir/bin/$name"; done
