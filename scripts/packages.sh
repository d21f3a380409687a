#!/usr/bin/env bash
# Installs and removes the packages in clean roots, as root: the Debian package in a Debian of
# nothing else, the RPM in an empty database. Makes all files of a release twice, and compares.
# Needs the network, for debootstrap. The last line is the count of checks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh
need debootstrap rpm umoci skopeo
workspace
# Root may not be the repository's owner.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

passed=0
pass() { echo "ok: $*" && passed=$((passed + 1)); }
fail() { echo "failed: $*" >&2 && exit 1; }

scripts/release.sh --out "$dir/release" --check
pass 'a release, the same bytes twice'
arch=$(dpkg --print-architecture)

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
	/usr/share/bash-completion/completions/remora /usr/share/remora/intercept.sh; do
	[[ -s $root$file ]] || fail "no $file"
done
in_root bash -c 'source /usr/share/bash-completion/completions/remora; complete -p remora' >/dev/null
pass 'the Debian package is installed'
in_root dpkg -i /tmp/remora.deb
pass 'it is installed again'
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
