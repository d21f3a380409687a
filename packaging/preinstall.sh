#!/bin/sh
# The configuration belongs to this user's group, so it exists before the files do.
set -e
if ! getent passwd remora >/dev/null; then
	useradd --system --user-group --no-create-home --home-dir /var/lib/remora --shell /usr/sbin/nologin remora
fi
