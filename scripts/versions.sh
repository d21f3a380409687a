#!/usr/bin/env bash
# Two versions at once: the tests of real sidecars, in which some sidecars run the last release and the others this tree.
# First those run it that accept links; then all others; then each sidecar that has a successor, by turns with it.
#
#   scripts/versions.sh [--short]     --short: links, streams, registrations and restarts; a few minutes
#   scripts/versions.sh --build       only builds the program of the last release, and prints its path
#
#   EARLIER=FILE    the program of another release
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { echo "versions: $*" >&2; exit 1; }

# release_commit VERSION prints the commit of a release: its tag, or the commit named after it.
release_commit() {
	git rev-parse -q --verify "v$1^{commit}" || git log -1 --format=%H --grep="^release: ${1//./\\.}\$"
}

# find_release sets version and commit to those of the last release before this tree. The tree may be a release itself.
find_release() {
	if [[ $(git rev-parse --is-shallow-repository) == true ]]; then git fetch --quiet --unshallow; fi
	for version in $(sed -nE 's/^## \[([0-9][^]]*)\].*/\1/p' CHANGELOG.md); do
		commit=$(release_commit "$version")
		if [[ -n $commit && $commit != $(git rev-parse HEAD) ]]; then return; fi
	done
	die 'this clone has no commit of an earlier release'
}

# last_release builds the program of the last release, and prints its path.
last_release() {
	local version commit program source
	find_release
	program=$PWD/bin/releases/remora-$version
	if [[ ! -x $program ]]; then
		source=$(mktemp -d)
		git archive "$commit" | tar -x -C "$source"
		mkdir -p bin/releases
		(cd "$source" && CGO_ENABLED=0 GOFLAGS=-trimpath go build -pgo=off -buildvcs=false -ldflags "-X main.version=v$version" -o "$program" ./cmd/remora)
		rm -rf "$source"
	fi
	echo "$program"
}

short=false
case ${1:-} in
'') ;;
--short) short=true ;;
--build)
	last_release
	exit
	;;
*) die "unknown option $1; see the head of $0" ;;
esac

REMORA_EARLIER=$(realpath -e "${EARLIER:-$(last_release)}")
export REMORA_EARLIER
"$REMORA_EARLIER" version

# mix BY PACKAGE... runs the tests of packages in e2e.
mix() {
	printf '\n== mixed by %s\n' "$1"
	export REMORA_MIX=$1
	shift
	go test -count=1 -timeout=60m "${flags[@]}" "${@/#/./e2e/}"
}

if $short; then
	flags=(-short)
	both=(streams endpoints limits routing tls registry dubbo)
	turns=(restart load registry)
else
	flags=()
	both=(addresses dubbo endpoints fleet grpc http2 https limits load names registry reload restart routing sources streams tls)
	turns=("${both[@]}")
fi
mix providers "${both[@]}"
mix consumers "${both[@]}"
mix turns "${turns[@]}"
