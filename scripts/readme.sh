#!/usr/bin/env bash
# Follows README.md and docs/getting-started.md word for word in a fresh copy of the
# repository, on their own ports: all commands run, and all files are written. A command
# fails that ends with an error, or prints something else than the page says; so does a
# block that this script does not know. It runs in a network namespace and with a /tmp of
# its own, so that nothing on this host is in the way. Needs root, Go, and of Debian's
# packages curl, etcd-server, iproute2, nodejs, python3 and util-linux. The last line is
# the count of commands.
#
# The first line of a block says what becomes of it:
#
#   sh install                  runs first, outside of the namespace
#   sh build, sh demo, sh try   ends by itself; a text block right after a try is its output
#   sh start=NAME               runs until the page ends, or starts another NAME
#   sh start=NAME needs=OTHER   the same, after all that docs/getting-started.md starts up to OTHER
#   yaml file=NAME              is written to this file
#   yaml, text                  is only shown
#
#   KEEP=DIR   keep the copy and the logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

pages=(README.md docs/getting-started.md)

fail() {
	printf 'readme.sh: %s\n' "$*" >&2
	exit 1
}

# blocks PAGE writes the content of each block to a file, and prints the lines FILE KIND.
blocks() {
	awk -v dir="$(mktemp -d -p "${dir:-/tmp}")" '
		/^ *~~~/ { print "- a fence of tildes" }
		/^ *```/ && !open { open = 1; sub(/^ *```/, ""); file = sprintf("%s/%03d", dir, ++n); printf "" >file; print file, $0; next }
		/^ *```/ { open = 0; close(file); next }
		open { print >file }' "$1"
}

# outside prepares what the pages expect to be there.
outside() {
	need awk curl etcd git go ip mount node python3 ss unshare
	((EUID == 0)) || fail 'needs root, to make a network namespace'
	workspace
	mkdir -p "$dir/tmp/remora"
	# Root may not be the repository's owner.
	git -c safe.directory="$PWD" ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' file; do if [[ -e $file ]]; then printf '%s\0' "$file"; fi; done |
		tar --create --null --files-from=- | tar --extract --directory="$dir/tmp/remora"
	go mod download

	# Root needs no sudo, and the packages of the other suites stay as they are.
	command -v sudo >/dev/null || install -m 755 /dev/stdin "$dir/bin/sudo" <<<$'#!/bin/sh\nexec "$@"'
	# Another process may hold the lock of the packages for a while.
	printf '%s\n' 'APT::Get::Upgrade "false";' 'DPkg::Lock::Timeout "300";' >"$dir/apt.conf"
	local page file kind
	for page in "${pages[@]}"; do
		while read -r file kind; do
			if [[ $kind == 'sh install' ]]; then
				PATH=$PATH:$dir/bin APT_CONFIG=$dir/apt.conf DEBIAN_FRONTEND=noninteractive bash -e "$file" < <(yes)
			fi
		done < <(blocks "$page")
	done
	attend_for 1500 unshare --net --mount scripts/readme.sh --inside "$dir"
}

declare -A pids=() # by the name of the process
count=0

# stop NAME ends a process, if it runs.
stop() {
	if [[ -n ${pids[$1]:-} ]]; then
		kill -TERM "${pids[$1]}" 2>/dev/null || true
		wait "${pids[$1]}" || true
		unset "pids[$1]"
	fi
}

stop_all() {
	local name
	for name in "${!pids[@]}"; do stop "$name"; done
}

# ready PID COMMAND reports whether a process can be used: sidecars and etcd say so, others listen.
ready() {
	case $2 in
	'bin/remora run -c '*) bin/remora healthcheck -c "${2#bin/remora run -c }" ;;
	'bin/remora run '*) bin/remora healthcheck ;;
	'etcd '*) curl -sf http://127.0.0.1:2379/health ;;
	*) ss -Hltnp | grep "pid=$1," ;;
	esac &>/dev/null
}

# start NAME FILE runs the command in a file until stop, and waits until it is ready.
start() {
	local name=$1 command end=$((SECONDS + 120))
	command=$(<"$2")
	printf '$ %s &\n' "$command"
	[[ $command != *$'\n'* ]] || fail "not one command: $command"
	stop "$name"
	bash -c "exec $command" >"/tmp/$name.log" 2>&1 &
	pids[$name]=$!
	until ready "${pids[$name]}" "$command"; do
		if ! kill -0 "${pids[$name]}" 2>/dev/null || ((SECONDS > end)); then
			tail -n 20 "/tmp/$name.log" >&2
			fail "did not start: $command"
		fi
		sleep 0.1
	done
	count=$((count + 1))
}

# start_up_to NAME starts the processes of docs/getting-started.md up to one.
start_up_to() {
	local file kind
	while read -r file kind; do
		if [[ $kind == 'sh start='* ]]; then start "${kind#sh start=}" "$file"; fi
		if [[ $kind == "sh start=$1" ]]; then return; fi
	done < <(blocks docs/getting-started.md)
	fail "docs/getting-started.md starts no $1"
}

# try FILE runs the commands in a file, and keeps what they print in output.
try() {
	sed 's/^/$ /' "$1"
	timeout 900 bash -e -o pipefail "$1" >/tmp/output 2>/tmp/errors || {
		tail -n 20 /tmp/output /tmp/errors >&2
		fail "failed: $(<"$1")"
	}
	output=$(</tmp/output)
	count=$((count + $(wc -l <"$1")))
}

# follow PAGE does what a page says.
follow() {
	local file kind before='' first=true output=''
	printf '\n== %s\n' "$1"
	while read -r file kind; do
		case $kind in
		'sh install' | yaml) ;;
		'sh build' | 'sh demo') try "$file" ;;
		'sh try')
			try "$file"
			if $first && [[ $1 == README.md ]]; then
				echo "-- an application is behind a sidecar after $count commands and $SECONDS s"
				((count <= 4)) || fail 'more than 3 commands, and the request'
			fi
			first=false
			;;
		'sh start='*' needs='*)
			start_up_to "${kind#* needs=}"
			kind=${kind% needs=*}
			start "${kind#sh start=}" "$file"
			;;
		'sh start='*) start "${kind#sh start=}" "$file" ;;
		'yaml file='*) cp "$file" "${kind#yaml file=}" ;;
		text)
			if [[ $before == 'sh try' && $output != "$(<"$file")" ]]; then
				fail "printed '$output', and $1 says '$(<"$file")'"
			fi
			;;
		*) fail "$1 has a block of the kind '$kind', which is not covered; see the head of this script" ;;
		esac
		before=$kind
	done < <(blocks "$1")
	stop_all
}

inside() {
	ip link set lo up
	mount --bind "$1/tmp" /tmp
	cd /tmp/remora
	unset TMPDIR {http,https,all,no}_proxy {HTTP,HTTPS,ALL,NO}_PROXY
	export GOPROXY=off # all modules are there
	trap stop_all EXIT
	local page
	for page in "${pages[@]}"; do follow "$page"; done
	printf '\n%s commands\n' "$count"
}

if [[ ${1:-} == --inside ]]; then inside "$2"; else outside; fi
