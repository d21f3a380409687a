#!/bin/sh
# deb says "remove" or "upgrade", rpm how many versions are left.
set -e
case ${1:-} in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --quiet disable --now remora.service
	fi
	;;
esac
