#!/usr/bin/env bash
# All files of a release: static binaries, packages for Debian and Red Hat, container images,
# lists of what is in the binaries (SBOM), licences, and checksums, signed if asked for. The same
# commit and toolchain give the same bytes. So no file of the tree may differ from the commit, or be new.
#
#   scripts/release.sh [--version V] [--out DIR] [--check] [--sign KEY]
#
#   --version V   default: git describe
#   --out DIR     empty, or not there yet; default: bin/release
#   --check       make it all once more, and compare
#   --sign KEY    sign the checksums with this key of ssh-keygen, as SHA256SUMS.sig. KEY may be the
#                 public half, if ssh-agent has the other one. The key is kept outside of the repository
#
# Besides Go it needs umoci and skopeo, which make images without a container engine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

version='' out=bin/release check='' key=''
while (($# > 0)); do
	case $1 in
	--version) version=${2:?} && shift ;;
	--out) out=${2:?} && shift ;;
	--check) check=1 ;;
	--sign) key=${2:?} && shift ;;
	*) echo "release: unknown option $1; see the head of $0" >&2 && exit 2 ;;
	esac
	shift
done
if [[ -n $(git status --porcelain) ]]; then
	echo "release: these files are not those of the commit; commit or remove them" >&2
	git status --short >&2
	exit 1
fi
if [[ -e $out && -n $(ls -A "$out") ]]; then
	echo "release: $out is not empty: SHA256SUMS would list what is there, too" >&2
	exit 1
fi
need umoci skopeo sha256sum
if [[ -n $key ]]; then
	need ssh-keygen
	[[ -f $key ]] || { echo "release: no key $key" >&2 && exit 1; }
fi
version=${version:-$(git describe --tags --always)}

# What a file was made by says when: the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# The tools of a release are no part of the program, nor of its go.mod.
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0
cyclonedx=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
GOBIN=$tools GOFLAGS='' go install "$nfpm"
GOBIN=$tools GOFLAGS='' go install "$cyclonedx"

# package_version prints the version as packages have it. They begin with a digit.
package_version() {
	case $version in
	v[0-9]*) echo "${version#v}" ;;
	[0-9]*.*) echo "$version" ;;
	*) echo "0.0.0+$(git log -1 --format=%cd --date=format:%Y%m%d).$version" ;;
	esac
}

created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

# image ARCH makes the image of docker/Dockerfile, which docker and podman load.
image() {
	local layout=$work/image-$1 root=$work/root-$1
	umoci init --layout "$layout"
	umoci new --image "$layout:remora"
	install -D -m 0755 "$out/remora-linux-$1" "$root/remora"
	install -D -m 0644 -t "$root/licences" LICENSE "$out/remora-licences.txt"
	touch -d "@$SOURCE_DATE_EPOCH" "$root/remora" "$root"/licences/* "$root/licences"
	umoci insert --image "$layout:remora" --history.created "$created" --history.author remora --history.created_by remora "$root/remora" /remora
	umoci insert --image "$layout:remora" --history.created "$created" --history.author remora --history.created_by remora "$root/licences" /licences
	umoci config --image "$layout:remora" --history.created "$created" --history.author remora --history.created_by remora \
		--created "$created" --architecture "$1" --os linux \
		--config.user 65532:65532 --config.entrypoint /remora --config.cmd run --config.cmd -c --config.cmd /config/remora.yaml \
		--config.label org.opencontainers.image.source=https://github.com/remora-proxy/remora \
		--config.label org.opencontainers.image.version="$version"
	rm -f "$out/remora-image-$1.tar"
	skopeo copy --quiet "oci:$layout:remora" "docker-archive:$out/remora-image-$1.tar:remora:$version"
}

# make OUT makes everything there.
make() {
	out=$1
	mkdir -p "$out"
	work=$(mktemp -d -p "$tools")
	mkdir "$work/man" "$work/completion"
	scripts/build.sh --darwin --version "$version" --out "$out"
	go run -tags manual -ldflags "-X main.version=$version" ./cmd/remora man "$work/man"
	gzip -n9 "$work"/man/*
	go run ./cmd/remora completion bash >"$work/completion/remora.bash"
	go run ./cmd/remora completion zsh >"$work/completion/_remora"
	go run ./cmd/remora completion fish >"$work/completion/remora.fish"
	go run ./cmd/remora init "$work/remora.yaml"
	cp "$out/remora-licences.txt" "$work"
	local arch format
	for arch in amd64 arm64; do
		cp "$out/remora-linux-$arch" "$work"
		for format in deb rpm; do
			ARCH=$arch OUT=$work VERSION=$(package_version) "$tools/nfpm" package -f packaging/nfpm.yaml -p "$format" -t "$out/"
		done
		"$tools/cyclonedx-gomod" bin -json -noserial -output "$out/remora-linux-$arch.cdx.json" -version "$version" "$out/remora-linux-$arch"
		sed -i "s/\"timestamp\": \"[^\"]*\"/\"timestamp\": \"$created\"/" "$out/remora-linux-$arch.cdx.json"
		image "$arch"
	done
	(cd "$out" && sha256sum -- remora* >SHA256SUMS && cat SHA256SUMS)
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
first=$out
make "$out"
if [[ -n $check ]]; then
	make "$tools/again"
	diff "$first/SHA256SUMS" "$tools/again/SHA256SUMS"
	echo "release: the same bytes twice"
fi
if [[ -n $key ]]; then
	ssh-keygen -q -Y sign -f "$key" -n remora-release "$first/SHA256SUMS"
fi
