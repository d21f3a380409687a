#!/usr/bin/env bash
# Faults of networks, machines, disks and etcd in a mesh of real processes under load:
# loss, partitions, RST, kill -9, SIGSTOP, and more; chaos/causes.py has them all. One at
# a time, chaos/faults.py: it shows what failed and why, and the time to recovery. Or
# several that come together, by schedules drawn from seeds: it judges what the callers
# have seen and the applications have done. The status is 1 when a promise is broken.
#
#   scripts/chaos.sh [--short] [--markdown FILE] [FAULT...]     all: 12 minutes
#   scripts/chaos.sh --together [--seed N] [--schedules N | --minutes N] [--shrink TRIES]
#   scripts/chaos.sh --together --replay SCHEDULE [--schedules N]
#
#   --short           a few faults, in less than 4 minutes
#   --markdown FILE   write the table into FILE, after its text; lab/bench/results/chaos.md
#                     is one
#   --seed N          the seed of the first schedule (default 1); the next has the next seed
#   --replay SCHEDULE a schedule as it was printed
#   --shrink TRIES    how many runs may shorten a schedule that fails (default 40)
#   KEEP=DIR          keep configuration files, logs and lines on all requests in DIR
#
# Needs root, Go, Python 3, and of Debian's packages etcd-server, iproute2, iptables and
# strace. Everything runs in network namespaces, which are gone at the end. Where the
# kernel has no sch_netem a program of its own stands in (chaos/wire.py).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need etcd go ip iptables mount python3 ss strace tc
if ((EUID != 0)); then
	echo 'chaos.sh: needs root, to make network namespaces' >&2
	exit 1
fi

program=chaos.py seconds=2400
if [[ ${1:-} == --together ]]; then
	program=together.py seconds=14400
	shift
fi
PYTHONPATH=scripts python3 -B -m unittest discover --start-directory scripts/chaos --pattern '*_test.py'

workspace
disk=$dir/disk # of the consumers; small, to be filled
mkdir -p "$disk"
mount -t tmpfs -o size=64m remora-chaos "$disk"
trap 'umount --lazy "$disk"; if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT

CGO_ENABLED=0 go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
suite "$seconds" "scripts/chaos/$program" "$@"
