#!/usr/bin/env bash
# Brings HAProxy and nginx of Debian's development branch, which are newer than the installed
# ones, and writes programs that run them to DIR/bin. They run without a chroot, with their own
# C library. Needs debootstrap, root and the network, the first time.
#
#   scripts/peers.sh DIR
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

dir=$(realpath -m "${1:?DIR}")
root=$dir/root
if [[ ! -x $root/usr/sbin/nginx ]]; then
	need debootstrap
	mirror=$(awk '/^URIs:/ { print $2; exit } $1 == "deb" { print $2; exit }' /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
	rm -rf "$root"
	debootstrap --variant=minbase --include=haproxy,nginx-core sid "$root" "$mirror" >"$dir.log" 2>&1 || { tail "$dir.log" >&2 && exit 1; }
fi
mkdir -p "$dir/bin"
libraries=$(printf '%s:' "$root"/usr/lib/*-linux-gnu)
for name in haproxy nginx; do
	printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$root"/lib64/ld-linux*.so.2 "${libraries%:}" "$root/usr/sbin/$name" >"$dir/bin/$name"
	chmod +x "$dir/bin/$name"
done
