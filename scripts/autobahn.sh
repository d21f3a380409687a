#!/usr/bin/env bash
# The Autobahn suite for WebSockets (PyPI: autobahntestsuite): as client of a server, directly,
# through one sidecar and through two, and as server of a client on the same ways. Each case must
# have the same result on each way; see e2e/peers/autobahn_test.go. Everything listens on free
# ports of 127.0.0.1 and is gone at the end.
#
#   scripts/autobahn.sh            all cases
#   scripts/autobahn.sh --short    without those that only measure (9) or compress (12, 13)
#   scripts/autobahn.sh CASES      only cases of these patterns, with commas between: '9.*,12.1.*'
#
# Needs Go, Python 3 with venv, and, the first time, a C compiler, debootstrap, root and the network:
# the suite is for Python 2.7, which comes from Debian 11.
#
#   PYTHON2=DIR   keeps Python 2.7 and the suite from run to run; default in the user's cache
#   KEEP=DIR      keeps the program that starts the suite in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

cases='*' less=
case ${1:-} in
--short) less="9.*,12.*,13.*" ;;
'') ;;
[0-9]*) cases=$1 ;;
*)
	echo "usage: scripts/autobahn.sh [--short|CASES]" >&2
	exit 2
	;;
esac
workspace
python2=$(realpath -m "${PYTHON2:-${XDG_CACHE_HOME:-$HOME/.cache}/remora-python2}")
debian bullseye "$python2/root" python2.7 libpython2.7-dev
debian_program "$python2/root" usr/bin/python2.7 "$dir/bin/python2.7-foreign"
cat >"$dir/bin/python2.7" <<SH
#!/bin/sh
PYTHONHOME=$python2/root/usr PYTHONWARNINGS=ignore exec $dir/bin/python2.7-foreign "\$@"
SH
# What runs a file of Python with the program above in the place of sys.executable.
pip='import runpy, sys; sys.executable = sys.argv[1]; del sys.argv[1]; runpy.run_module("pip", run_name="__main__")'
cat >"$dir/bin/wstest" <<SH
#!/bin/sh
exec $dir/bin/python2.7 -c 'from autobahntestsuite.wstest import run; run()' "\$@"
SH
chmod +x "$dir"/bin/*

requirements=scripts/autobahn/requirements.txt site=$python2/root/usr/local/lib/python2.7/dist-packages
if ! cmp -s "$requirements" "$site/requirements.txt"; then
	rm -rf "$site"
	python3 -m venv "$python2/venv"
	install=(install --quiet --disable-pip-version-check --no-deps --no-compile --target "$site")
	"$python2/venv/bin/pip" "${install[@]}" --python-version 2.7 --only-binary :all: pip==20.3.4 setuptools==44.0.0
	include=$python2/root/usr/include # of wsaccel, which is in C
	C_INCLUDE_PATH=$include/python2.7:$include:$include/$(uname -m)-linux-gnu \
		"$dir/bin/python2.7" -c "$pip" "$dir/bin/python2.7" "${install[@]}" --prefer-binary -r "$requirements"
	cp "$requirements" "$site"
fi

attend_test ./e2e/peers -count=1 -timeout=6h -v -run '^TestAutobahn' -autobahn="$dir/bin/wstest" -autobahn-cases="$cases" -autobahn-less="$less"
