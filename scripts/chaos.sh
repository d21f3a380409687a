#!/usr/bin/env bash
# Faults of networks, machines, disks and etcd, done to a mesh of real processes
# under load: loss, partitions, RST, kill -9, SIGSTOP, and more; chaos/faults.py
# has them all. For each it shows what failed and why, and how long it took until
# all was well again; the status is 1 when something is not as promised.
#
#   scripts/chaos.sh [--short] [--markdown FILE] [FAULT,...]     all: 12 minutes
#
#   --short           a few faults, in less than 4 minutes
#   --markdown FILE   write the table there; docs/chaos.md is one
#   KEEP=DIR          keep configuration files, logs and lines on all requests in DIR
#
# Needs root, Go, Python 3, and of Debian's packages etcd-server, iproute2 and
# iptables. Everything runs in network namespaces, which are gone at the end. Where
# the kernel has no sch_netem a program of its own stands in (chaos/wire.py).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

readonly all=none,loss-1,loss-10,delay,delay-one,reorder,partition-to,partition-from,partition,rst,half-open,half-open-consumer,kill-provider,kill-app,kill-consumer,stop-provider,stop-app,disk-full,clock,fds,etcd-lost,cold-start,etcd-keys,etcd-data,etcd-leader
readonly short=loss-10,partition,rst,kill-provider,kill-app,stop-provider,stop-app,etcd-leader

usage() {
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
	exit 2
}

faults=$all
options=()
while (($# > 0)); do
	case $1 in
	--short) faults=$short ;;
	--markdown)
		(($# > 1)) || usage
		options+=(--markdown "$2")
		shift
		;;
	-*) usage ;;
	*) faults=$1 ;;
	esac
	shift
done

for tool in etcd go ip iptables mount python3 ss tc; do
	command -v "$tool" >/dev/null || { echo "chaos.sh: $tool is not installed" >&2; exit 1; }
done
if ((EUID != 0)); then
	echo 'chaos.sh: needs root, to make network namespaces' >&2
	exit 1
fi

dir=${KEEP:-$(mktemp -d)}
mkdir -p "$dir/bin"
trap 'if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT

CGO_ENABLED=0 go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
export PYTHONPATH=scripts/interop
timeout --kill-after=30 2400 python3 -B scripts/chaos/chaos.py "$dir/bin" "$dir" "${options[@]}" ${faults//,/ }
