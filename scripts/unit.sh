#!/usr/bin/env bash
# The unit of the packages under a real systemd, which is the first process of namespaces of its own:
# its root is this host's, with all changes in memory. Starts, reloads, replaces, kills and stops the
# sidecar. Needs root, Go, curl and systemd. The last line is the count of checks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

# inside makes the root and becomes systemd. Its arguments are the folders of the program and of the root.
inside() {
	local bin=$1 root=$2/root unit=$PWD/packaging/remora.service device
	mount --make-rprivate /
	mount -t tmpfs tmpfs "$2"
	mkdir "$2/changes" "$2/work" "$root"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$2/changes,workdir=$2/work" "$root"
	cp "$bin/remora" "$root/usr/bin/remora"
	cp "$unit" "$root/etc/systemd/system/remora.service"
	rm -rf "$root"/etc/systemd/system/*.wants
	if ! grep -q '^remora:' "$root/etc/passwd"; then
		echo 'remora:x:61004:61004::/nonexistent:/usr/sbin/nologin' >>"$root/etc/passwd"
		echo 'remora:x:61004:' >>"$root/etc/group"
	fi
	mkdir -p "$root/etc/remora"
	cat >"$root/etc/remora/remora.yaml" <<-'YAML'
		admin: {address: "127.0.0.1:9901"}
		listeners: [{name: http, address: "127.0.0.1:8080", protocol: http}]
		routes: [{respond: {status: 200, body: first}}]
	YAML
	printf '[Unit]\nRequires=remora.service\nAfter=remora.service\nAllowIsolate=yes\n' >"$root/etc/systemd/system/try.target"
	mount -t proc proc "$root/proc"
	mount -t sysfs sysfs "$root/sys"
	for device in dev run tmp; do mount -t tmpfs tmpfs "$root/$device"; done
	for device in null zero full random urandom tty; do
		touch "$root/dev/$device"
		mount --bind "/dev/$device" "$root/dev/$device"
	done
	mkdir "$root"/dev/{pts,shm,mqueue,hugepages}
	ln -s pts/ptmx "$root/dev/ptmx"
	mount -t devpts devpts "$root/dev/pts" -o newinstance
	if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
		mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
	else
		mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
		mkdir "$root/sys/fs/cgroup/systemd"
		mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
	fi
	ip link set lo up
	cd "$root"
	mkdir -p old
	pivot_root . old
	umount -l /old
	mount --make-rshared /
	exec env -i container=lxc PATH=/usr/sbin:/usr/bin /usr/lib/systemd/systemd --system --unit=try.target --show-status=no
}
if [[ ${1:-} == inside ]]; then inside "$2" "$3"; fi

need curl go ip nsenter systemctl unshare
workspace
CGO_ENABLED=0 go build -o "$dir/bin/" ./cmd/remora
mkdir "$dir/memory"
unshare --pid --fork --kill-child --mount --ipc --uts --net --cgroup scripts/unit.sh inside "$dir/bin" "$dir/memory" &>"$dir/systemd.log" &
outer=$!
trap 'kill -KILL "$outer" 2>/dev/null; if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT
first=
within() { nsenter -t "$first" -p -m -n -r -w -- "$@"; }
body() { within curl -s --max-time 5 127.0.0.1:8080; }
main() { within systemctl show remora -p MainPID --value; }

passed=0 failed=0
check() {
	local name=$1
	shift
	if "$@"; then echo "ok    $name" && passed=$((passed + 1)); else echo "FAIL  $name" && failed=$((failed + 1)); fi
}
# await COMMAND... waits up to a minute until it succeeds.
await() {
	local _
	for _ in {1..300}; do
		if "$@" &>/dev/null; then return 0; fi
		sleep 0.2
	done
	return 1
}
answers() { [[ $(body) == "$1" ]]; }
started() { first=$(pgrep -P "$outer") && answers first; }
replaced() { [[ $(main) != "$1" && $(main) != 0 ]] && answers "$2"; }
confined() { within grep -q '^Seccomp:.2$' "/proc/$(main)/status" && within grep -q '^CapEff:.0*$' "/proc/$(main)/status"; }
stopped() { [[ $(within systemctl show remora -p Result --value) == success ]] && ! within systemctl is-active -q remora; }
refuses() { ! within systemctl reload remora 2>/dev/null && within systemctl is-active -q remora && answers "$1"; }

check 'the unit starts' await started
check 'it is confined' confined
within sed -i s/first/second/ /etc/remora/remora.yaml
check 'a reload' within systemctl reload remora
check 'its change' await answers second
before=$(main)
(
	failures=0
	while [[ ! -e $dir/replaced ]]; do body >/dev/null || failures=$((failures + 1)); done
	echo "$failures" >"$dir/failures"
) &
load=$!
within systemctl kill -s USR2 --kill-whom=main remora
check 'a hot restart has another main process' await replaced "$before" second
touch "$dir/replaced"
wait "$load"
check 'no request is lost meanwhile' test "$(<"$dir/failures")" = 0
within cp /etc/remora/remora.yaml /etc/remora/good.yaml
echo 'loops: x' | within tee -a /etc/remora/remora.yaml >/dev/null
check 'a reload of a wrong file fails, and the service goes on' refuses second
within cp /etc/remora/good.yaml /etc/remora/remora.yaml
before=$(main)
within kill -KILL "$before"
check 'a killed process is started again' await replaced "$before" second
within systemctl stop remora
check 'a stop drains and succeeds' stopped
if ((failed > 0)); then within journalctl --no-pager -u remora 2>/dev/null | tail -n 20 >&2 || tail -n 20 "$dir/systemd.log" >&2; fi
printf '\n%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
