#!/usr/bin/env bash
# The suite of caches that cache-tests.fyi runs (github.com/http-tests/cache-tests) against a route
# with a cache. Cases that differ on purpose are in scripts/http-cache/expected.txt; what it asks
# without an opinion, and what is only for browsers, is not compared. Takes two minutes.
#
# Needs Go, git, node and npm.
#
#   scripts/http-cache.sh
#
#   SUITE=DIR   a copy of the suite, with its packages, in place of a download
#   KEEP=DIR    keeps the programs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need go git node npm
workspace
commit=b55b8bd # of the suite; its releases in npm are old
suite_dir=${SUITE:-$dir/suite}
if [[ ! -d $suite_dir ]]; then
	git clone --quiet https://github.com/http-tests/cache-tests.git "$suite_dir"
	git -C "$suite_dir" checkout --quiet "$commit"
	npm install --prefix "$suite_dir" --no-save --silent --omit=dev undici@7.4.0
fi
go build -o "$dir/bin/" ./cmd/remora

read -r origin cache admin < <(node -e '
const net = require("net"), all = [0, 1, 2].map(() => net.createServer().listen(0, "127.0.0.1"))
Promise.all(all.map(s => new Promise(done => s.on("listening", done)))).then(() => {
  console.log(all.map(s => s.address().port).join(" "))
  all.forEach(s => s.close())
})')
cat >"$dir/cache.yaml" <<YAML
listeners: [{name: cache, address: "127.0.0.1:$cache", protocol: http}]
admin: {address: "127.0.0.1:$admin"}
loops: 1
routes: [{service: origin, cache: {ttl: 0s, stale: 0s}}]
services: {origin: {discover: static, endpoints: ["127.0.0.1:$origin"], hedge: {mode: off}}}
YAML

pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT
npm_config_protocol=http npm_config_port=$origin npm_config_pidfile=$dir/server.pid \
	node "$suite_dir/test-engine/server/server.mjs" >"$dir/server.log" 2>&1 &
pids+=($!)
"$dir/bin/remora" run -c "$dir/cache.yaml" >"$dir/remora.log" 2>&1 &
pids+=($!)
for port in "$origin" "$cache"; do
	for ((i = 0; i < 100; i++)); do
		if (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
		sleep 0.1
	done
done
node --no-warnings scripts/http-cache/run.mjs "$suite_dir" "http://127.0.0.1:$cache" scripts/http-cache/expected.txt
