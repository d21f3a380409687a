#!/usr/bin/env bash
# Installs the Debian packages that the suites need besides Go and a C compiler (for the
# race detector), as root or by sudo.
#
#   scripts/install.sh [--all]
#
#   --all   those that only scripts/nightly.sh needs, too
set -euo pipefail

# Name the suite beside each.
packages=(
	etcd-server python3                           # interop and others
	curl default-jdk-headless nodejs python3-venv # interop, http-proxy, streams, soak, readme, tls, sslyze, frameworks, autobahn, lint
	openssl                                       # soak, tls, sslyze
	maven                                         # interop-dubbo, http-proxy, grpc, triple, frameworks
	nghttp2-client                                # http2
	unzip                                         # grpc, oss-fuzz
	wrk                                           # interop, cost
	shellcheck                                    # lint
	strace valgrind                               # cost; chaos
	chromium                                      # dashboard
	iptables iproute2 redis-server util-linux     # intercept-test, chaos, readme, frameworks
	mount                                         # chaos, frameworks
	systemd                                       # test: systemd-analyze
	debootstrap openssh-client rpm skopeo umoci   # packages; strictness, differential, autobahn
	apache2-bin haproxy lighttpd nginx            # differential, sockets; tls and http2, too
	zookeeper                                     # zookeeper-source
	gunicorn python3-aiohttp python3-hypercorn    # differential
	python3-tornado python3-uvicorn               # differential
)
if [[ ${1:-} == --all ]]; then
	packages+=(docker.io docker-compose) # compose-check, contest
	packages+=(clang libclang-rt-dev zip) # oss-fuzz
	if ! command -v npm >/dev/null; then packages+=(npm); fi # http-proxy, frameworks
fi

as_root=()
if ((EUID != 0)); then as_root=(sudo); fi
export DEBIAN_FRONTEND=noninteractive

# apt ARG... runs apt-get. A timer of the system may hold a lock of it, and a mirror may be out
# of reach, for a while.
apt() {
	local _
	for _ in {1..5}; do
		if "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 "$@"; then return; fi
		sleep 15
	done
	return 1
}
apt update -q
apt install -q -y --no-install-recommends "${packages[@]}"
