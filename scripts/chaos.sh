#!/usr/bin/env bash
# Faults of networks, machines, disks and etcd in a mesh of real processes under load:
# loss, partitions, RST, kill -9, SIGSTOP, and more; chaos/faults.py has them all. For
# each it shows what failed and why, and the time to recovery. The status is 1 when a
# promise is broken.
#
#   scripts/chaos.sh [--short] [--markdown FILE] [FAULT...]     all: 12 minutes
#
#   --short           a few faults, in less than 4 minutes
#   --markdown FILE   write the table into FILE, after its text; lab/bench/results/chaos.md
#                     is one
#   KEEP=DIR          keep configuration files, logs and lines on all requests in DIR
#
# Needs root, Go, Python 3, and of Debian's packages etcd-server, iproute2 and
# iptables. Everything runs in network namespaces, which are gone at the end. Where
# the kernel has no sch_netem a program of its own stands in (chaos/wire.py).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need etcd go ip iptables mount python3 ss tc
if ((EUID != 0)); then
	echo 'chaos.sh: needs root, to make network namespaces' >&2
	exit 1
fi

workspace
disk=$dir/disk # of the consumer; small, to be filled
mkdir -p "$disk"
mount -t tmpfs -o size=64m remora-chaos "$disk"
trap 'umount --lazy "$disk"; if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT

CGO_ENABLED=0 go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
suite 2400 scripts/chaos/chaos.py "$@"
