#!/bin/sh
# The service does not start by itself: its configuration has to be written first. One that
# runs is replaced without a lost connection.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if systemctl --quiet is-active remora.service; then
		systemctl kill --signal=USR2 --kill-whom=main remora.service
	fi
fi
