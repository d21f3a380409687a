# What the suites of real processes share; they source it at the repository's root.
# shellcheck shell=bash

# workspace sets dir to $KEEP, or to a directory that is gone at the end.
workspace() {
	dir=${KEEP:-$(mktemp -d)}
	mkdir -p "$dir/bin"
	trap 'if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT
}

# virtual_python NAME REQUIREMENTS sets python to one that has these packages. It is
# kept from run to run, in $VENV or else among the user's caches.
virtual_python() {
	local venv=${VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/remora-$1-venv}
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$2"
	python=$venv/bin/python
}

# attend COMMAND... runs a command that has processes to stop: what ends this script
# ends the command first, and it is waited for. Left alone, bash would end before it,
# and timeout keep a terminal's interrupt from it.
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

# attend_for SECONDS COMMAND... is attend of what may take so long.
attend_for() { attend timeout --kill-after=30 "$@"; }
