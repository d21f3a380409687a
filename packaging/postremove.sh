#!/bin/sh
# The user stays, as Debian's policy has it: files elsewhere may be its own.
set -e
case ${1:-} in
purge) rm -rf /var/lib/remora /etc/remora ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
