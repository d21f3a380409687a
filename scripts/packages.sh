#!/usr/bin/env bash
# Installs and removes the packages in clean roots, as root: the Debian package in a Debian of
# nothing else, the RPM in an empty database. Makes all files of a release twice, and compares.
# Needs the network, for debootstrap. The last line is the count of checks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh
need curl debootstrap python3 rpm skopeo ss ssh-keygen umoci
workspace
# Root may not be the repository's owner.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

passed=0
pass() { echo "ok: $*" && passed=$((passed + 1)); }
fail() { echo "failed: $*" >&2 && exit 1; }

ssh-keygen -q -t ed25519 -N '' -C '' -f "$dir/key"
scripts/release.sh --out "$dir/release" --check --sign "$dir/key"
pass 'a release, the same bytes twice'
printf 'releases namespaces="remora-release" %s\n' "$(<"$dir/key.pub")" >"$dir/allowed_signers"
# verify reads checksums, and reports whether the key of the release has signed them.
verify() { ssh-keygen -Y verify -f "$dir/allowed_signers" -I releases -n remora-release -s "$dir/release/SHA256SUMS.sig"; }
verify <"$dir/release/SHA256SUMS" || fail 'the signature of the checksums is wrong'
if sed 's/^./f/' "$dir/release/SHA256SUMS" | verify; then fail 'other checksums have the signature, too'; fi
(cd "$dir/release" && sha256sum --quiet --check SHA256SUMS)
pass 'signed checksums'
if scripts/release.sh --out "$dir/release"; then
	fail 'a release among the files of another'
fi
touch release-of-a-changed-tree
if scripts/release.sh --out "$dir/changed"; then
	rm release-of-a-changed-tree
	fail 'a release of a tree that is not the commit'
fi
rm release-of-a-changed-tree
pass 'no release of other files'
if [[ -n $(command -v systemd-analyze) ]]; then
	systemd-analyze security --offline=true --threshold=25 packaging/remora.service | tail -n 1 # tenths of its scale to 10
	pass 'the unit is confined'
fi
arch=$(dpkg --print-architecture)

image=$dir/release/remora-image-$arch.tar
# umoci's layers have no end, and some names of layers are links: tar complains of both.
tar -tf "$image" | grep '\.tar$' | while read -r layer; do tar -xOf "$image" "$layer" | tar -t 2>/dev/null || true; done >"$dir/image"
for file in remora licences/LICENSE licences/remora-licences.txt; do
	grep -qx "$file" "$dir/image" || fail "the image has no $file: $(<"$dir/image")"
done
pass 'the image has the program and the licences'

root=$dir/root
debootstrap --variant=minbase stable "$root" >"$dir/debootstrap.log" 2>&1 || fail "$(tail "$dir/debootstrap.log")"
in_root() { chroot "$root" "$@"; }
files() { find "$root" -xdev \( -path "$root/var/lib/dpkg" -o -path "$root/var/log" -o -path "$root/tmp" \) -prune -o -print | sort; }

files >"$dir/before"
cp "$dir"/release/remora_*_"$arch".deb "$root/tmp/remora.deb"
in_root dpkg -i /tmp/remora.deb
in_root remora version
in_root remora check -c /etc/remora/remora.yaml
in_root getent passwd remora >/dev/null || fail 'no user'
[[ $(in_root stat -c %U:%G:%a /etc/remora/remora.yaml) == root:remora:640 ]] || fail "$(in_root stat /etc/remora/remora.yaml)"
for file in /usr/lib/systemd/system/remora.service /usr/share/man/man1/remora-run.1.gz \
	/usr/share/bash-completion/completions/remora /usr/share/remora/intercept.sh /usr/share/doc/remora/licences.txt; do
	[[ -s $root$file ]] || fail "no $file"
done
in_root bash -c 'source /usr/share/bash-completion/completions/remora; complete -p remora' >/dev/null
pass 'the Debian package is installed'
in_root dpkg -i /tmp/remora.deb
pass 'it is installed again'

# An upgrade of a service that runs with a configuration of its own. The roots have no systemd: a
# program in its place records what it is asked for, and does that.
free_ports listen admin
listen=127.0.0.1:$listen admin=127.0.0.1:$admin
cat >"$root/etc/remora/remora.yaml" <<EOF
admin: {address: "$admin"}
listeners: [{name: http, address: "$listen", protocol: http}]
routes: [{respond: {status: 200}}]
EOF
mkdir -p "$root/run/systemd/system" "$root/run/remora"
in_root chown remora /run/remora
install -m 0755 /dev/stdin "$root/usr/local/bin/systemctl" <<'EOF'
#!/bin/sh
case "$*" in
'kill --signal=USR2 --kill-whom=main remora.service') kill -USR2 "$(cat /tmp/pid)" ;;
esac
EOF
# stop_service ends the service, and waits for its end.
stop_service() {
	local pid
	pid=$(ss -Hltnp "src $admin" | sed -n 's/.*pid=\([0-9]*\).*/\1/p')
	if [[ -n $pid ]]; then
		kill "$pid"
		await 'the end of the service' ended "$pid"
	fi
}
# ended PID reports whether a process has ended; nobody may have waited for it.
ended() { [[ ! -e /proc/$1 || $(sed 's/.*) //' "/proc/$1/stat") == Z* ]]; }
trap 'stop_service; if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT
chroot --userspec=remora:remora "$root" env RUNTIME_DIRECTORY=/run/remora remora run -c /etc/remora/remora.yaml &>"$dir/service.log" &
echo $! >"$root/tmp/pid"
await 'the service' curl -sf "$admin/readyz"
dpkg-deb -R "$root/tmp/remora.deb" "$dir/next"
rm -f "$dir/next/DEBIAN/conffiles" # has an empty line only, at which dpkg-deb stops
sed -i 's/^Version: .*/&.next/' "$dir/next/DEBIAN/control"
echo '# Another first configuration.' >>"$dir/next/usr/share/remora/remora.yaml"
dpkg-deb -Zgzip -z1 -b "$dir/next" "$root/tmp/next.deb"
hot_restarts() { curl -s "$admin/metrics" | sed -n 's/^remora_hot_restarts //p'; }
(
	failures=0
	while [[ ! -e $dir/upgraded ]]; do curl -sf "$listen" || failures=$((failures + 1)); done
	echo "$failures" >"$dir/failures"
) &
load=$!
in_root dpkg -i /tmp/next.deb </dev/null
replaced() { [[ $(hot_restarts) == 1 ]]; }
(await 'another service' replaced) || fail "the service was not replaced: $(tail "$dir/service.log")"
touch "$dir/upgraded"
wait "$load"
[[ $(<"$dir/failures") == 0 ]] || fail "$(<"$dir/failures") requests failed"
await 'the end of the former process' ended "$(<"$root/tmp/pid")"
grep -q "$listen" "$root/etc/remora/remora.yaml" || fail 'the configuration is another one'
stop_service
rm -r "$root/usr/local/bin/systemctl" "$root/run/systemd" "$root/run/remora"
pass 'an upgrade asks nothing, keeps the configuration, and loses no request'
in_root dpkg --purge remora
files >"$dir/after"
# What adding a user leaves.
diff "$dir/before" <(grep -vE '/etc/(passwd|shadow|group|gshadow|subuid|subgid)-?$|/etc/\.pwd\.lock$' "$dir/after" | cat - <(grep -E '/etc/(passwd|shadow|group|gshadow|subuid|subgid)-?$|/etc/\.pwd\.lock$' "$dir/before") | sort) || fail 'files are left'
pass 'it is removed, and leaves nothing'

rpm=$(ls "$dir"/release/remora-*.x86_64.rpm)
mkdir "$dir/rpm"
rpm --root "$dir/rpm" --initdb
rpm --root "$dir/rpm" --nodeps --noscripts --ignorearch -i "$rpm"
"$dir/rpm/usr/bin/remora" version
rpm --root "$dir/rpm" --verify --nodeps remora | grep -v 'G\. ' || true
rpm --root "$dir/rpm" --noscripts -e remora
[[ ! -e $dir/rpm/usr/bin/remora ]] || fail 'the rpm leaves its program'
pass 'the RPM is installed and removed'

echo "$passed passed, 0 failed"
