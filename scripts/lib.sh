# What the suites of real processes share. They source it at the repository's root.
#
#   ENGINE=gnet   the engine of the sidecars (see docs/engines.md)
# shellcheck shell=bash

if [[ -n ${ENGINE:-} ]]; then export REMORA_ENGINE=$ENGINE; fi

# need TOOL... ends the script if one of them is not installed.
need() {
	local tool missing=()
	for tool in "$@"; do
		command -v "$tool" >/dev/null || missing+=("$tool")
	done
	if ((${#missing[@]} > 0)); then
		echo "$0: not installed: ${missing[*]}" >&2
		exit 1
	fi
}

# workspace sets dir to the path of $KEEP, or of a directory that is removed at the end.
workspace() {
	dir=$(realpath -m "${KEEP:-$(mktemp -d)}")
	mkdir -p "$dir/bin"
	trap 'if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT
}

# suite SECONDS FILE ARG... runs a Python suite, which may take so long. Its programs
# are in $dir/bin; its interpreter is $python if that is set.
suite() {
	local seconds=$1
	shift
	DIR=$dir BIN=$dir/bin PYTHONPATH=scripts attend_for "$seconds" "${python:-python3}" -B "$@"
}

# virtual_python NAME REQUIREMENTS sets python to an interpreter with these packages. It
# is kept from run to run, in $VENV or in the user's cache.
virtual_python() {
	local venv=${VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/remora-$1-venv}
	(
		flock 3 # suites that run at the same time may want the same packages
		python3 -m venv "$venv"
		"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$2"
	) 3<scripts/lib.sh
	python=$venv/bin/python
}

# maven ARG... runs Maven. Suites that run at the same time share its repository, so they wait for each other.
maven() { flock scripts/lib.sh timeout 900 mvn --quiet --batch-mode "$@"; }

# await WHAT COMMAND... repeats a command until it succeeds. It ends the script if that does
# not happen within two minutes, long enough for a busy machine.
await() {
	local what=$1 end=$((SECONDS + 120))
	shift
	until "$@" &>/dev/null; do
		if ((SECONDS > end)); then
			echo "$0: $what: not within two minutes" >&2
			exit 1
		fi
		sleep 0.1
	done
}

# free_ports NAME... sets each variable to a port of 127.0.0.1 without a listener.
free_ports() {
	read -r "$@" < <(PYTHONPATH=scripts python3 -B -c '
import sys
from harness.process import free_port
print(*(free_port() for _ in sys.argv[1:]))' "$@")
}

# attend COMMAND... runs a command that has processes to stop. A signal that ends this
# script ends the command first, and the script waits for it: bash alone would not wait,
# and timeout would keep a terminal's interrupt from it.
attend() {
	local child status=0
	"$@" &
	child=$!
	trap 'kill -TERM "$child" 2>/dev/null' INT TERM HUP
	while kill -0 "$child" 2>/dev/null; do
		status=0
		wait "$child" || status=$?
	done
	trap - INT TERM HUP
	return "$status"
}

# attend_for SECONDS COMMAND... is attend with a time limit.
attend_for() { attend timeout --kill-after=30 "$@"; }

# attend_test ARG... is attend for go test, which alone would leave its processes: timeout ends all of them.
attend_test() { attend_for 0 go test "$@"; }

# debian RELEASE ROOT PACKAGE... unpacks another release of Debian with some packages below ROOT,
# unless that has been done: of sid, within 14 days. Needs debootstrap, root and the network.
debian() {
	local release=$1 root=$2 mirror
	shift 2
	if [[ "$(cat "$root/complete" 2>/dev/null)" == "$*" && ($release != sid || -z $(find "$root/complete" -mtime +13)) ]]; then return; fi
	need debootstrap
	mirror=$(awk '/^URIs:/ { print $2; exit } $1 == "deb" { print $2; exit }' /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
	mkdir -p "${root%/*}"
	: >"$root.log"
	for mirror in "$mirror" http://archive.debian.org/debian; do # the archive has old releases
		rm -rf "$root"
		if debootstrap --variant=minbase --include="$(IFS=, && echo "$*")" "$release" "$root" "$mirror" >>"$root.log" 2>&1; then
			echo "$*" >"$root/complete"
			return
		fi
	done
	tail "$root.log" >&2
	exit 1
}

# debian_program ROOT PATH FILE writes FILE, which runs a program of such a Debian without a
# chroot, with its own C library.
debian_program() {
	local libraries
	libraries=$(printf '%s:' "$1"/usr/lib/*-linux-gnu)
	printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$1"/usr/lib/*-linux-gnu/ld-linux*.so.* "${libraries%:}" "$1/$2" >"$3"
	chmod +x "$3"
}
