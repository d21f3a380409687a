#!/usr/bin/env bash
# Release builds of the sidecar, and of the lab if asked for: static, for linux on
# amd64 and arm64, with SHA-256 sums, and beside them the licences of what is in them. The same commit and toolchain give the
# same bytes wherever it is built.
#
#   scripts/build.sh [--version V] [--out DIR] [--lab] [--darwin] [--clean] [--check]
#
#   --version V   what "remora version" says (default: git describe)
#   --out DIR     where the binaries go (default: bin/release)
#   --lab         the lab binary too, which the compose files in docker/ need
#   --darwin      for macOS on amd64 and arm64, too
#   --clean       refuse a tree with changes that are not committed
#   --check       build again from a copy elsewhere, and compare; then build sidecar and lab
#                 for macOS and FreeBSD, on which no test runs, and vet for macOS. With --lab
#                 also vet for FreeBSD
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { echo "build: $*" >&2; exit 1; }

version='' out=bin/release clean='' check='' commands=(remora) targets=(linux-amd64 linux-arm64) vetted=darwin/arm64
while (($# > 0)); do
	case $1 in
	--version) version=${2:?} && shift ;;
	--out) out=${2:?} && shift ;;
	--lab) commands+=(remora-lab) vetted+=' freebsd/amd64' ;;
	--darwin) targets+=(darwin-amd64 darwin-arm64) ;;
	--clean) clean=1 ;;
	--check) check=1 ;;
	*) die "unknown option $1; see the head of $0" ;;
	esac
	shift
done

if [[ -n $clean && -n $(git status --porcelain) ]]; then
	die "the tree has changes that are not committed"
fi
version=${version:-$(git describe --tags --always --dirty)}
[[ $version =~ ^[A-Za-z0-9._+-]+$ ]] || die "not a version: $version"

# compile COMMAND OS-ARCH FILE builds what is in the working directory. What the toolchain
# would record of the repository is left out: a release says it by its version.
compile() {
	CGO_ENABLED=0 GOOS=${2%-*} GOARCH=${2#*-} GOFLAGS='' go build -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X main.version=$version" -o "$3" "./cmd/$1"
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
files=()
for command in "${commands[@]}"; do
	for target in "${targets[@]}"; do
		file=$out/$command-$target
		compile "$command" "$target" "$file"
		built=$(go version -m "$file")
		settings=("GOARCH=${target#*-}" CGO_ENABLED=0 -trimpath=true)
		if [[ $command == remora ]]; then settings+=(-pgo=default.pgo); fi # scripts/pgo.sh
		for setting in "${settings[@]}"; do
			grep -qF -- "$setting" <<<"$built" || die "$file was built without $setting"
		done
		# A static binary names no loader: it has no INTERP segment.
		if grep -qa '/ld-linux\|/ld-musl' "$file"; then die "$file is not static"; fi
		files+=("$command-$target")
	done
done
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) arch='' ;;
esac
if [[ -n $arch ]]; then
	said=$("$out/remora-linux-$arch" version)
	[[ $said == "remora $version "*" linux/$arch engine="* ]] || die "remora-linux-$arch says it is: $said"
fi
scripts/licences.sh "${files[@]/#/$out/}" >"$out/remora-licences.txt"
(cd "$out" && sha256sum "${files[@]}" | tee SHA256SUMS)

if [[ -n $check ]]; then
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy" # all: any may be embedded
	for command in "${commands[@]}"; do
		for target in "${targets[@]}"; do
			(cd "$copy" && compile "$command" "$target" "$copy/again")
			cmp "$copy/again" "$out/$command-$target" || die "another build of $command for $target is not the same"
		done
	done
	echo "build: the same from a copy elsewhere"
	# No file is for one processor alone: one is enough for each system.
	export CGO_ENABLED=0 GOFLAGS=-pgo=off
	for target in darwin/arm64 freebsd/amd64; do
		export GOOS=${target%/*} GOARCH=${target#*/}
		go build -o "$copy/" ./cmd/remora ./cmd/remora-lab || die "no build for $target"
		if [[ " $vetted " == *" $target "* ]]; then go vet ./... || die "go vet for $target"; fi
	done
	echo "build: sidecar and lab build for macOS and FreeBSD"
fi
