#!/bin/sh
# The service does not start by itself: its configuration has to be edited first. An upgrade
# leaves that alone: a file of the package would have to be compared by hand whenever a new
# version begins with another one. A service that runs is replaced without a lost connection.
set -e
if [ ! -e /etc/remora/remora.yaml ]; then
	install -D -m 0640 -g remora /usr/share/remora/remora.yaml /etc/remora/remora.yaml
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if systemctl --quiet is-active remora.service; then
		systemctl kill --signal=USR2 --kill-whom=main remora.service
	fi
fi
