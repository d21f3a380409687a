#!/usr/bin/env bash
# Points real HTTP clients at a sidecar as docs/http-proxy.md says, and compares what each does
# with its row of the table there: a row is a check. Needs curl, Python 3 with venv, Node, npm,
# Java, Maven and Go. Everything listens on free ports of 127.0.0.1 and is gone at the end. The
# last line is the count of checks.
#
#   scripts/http-proxy.sh [--short]
#
#   --short    only what needs no pip, npm and Maven
#   KEEP=DIR   keeps programs and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

short=${1:-}
need curl python3 node java javac
workspace
running=()
trap 'kill "${running[@]}" 2>/dev/null || true; wait; if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi' EXIT
here=$PWD/scripts/http-proxy
for name in http_proxy https_proxy all_proxy no_proxy grpc_proxy; do unset "$name" "${name^^}"; done

# background FILE COMMAND... runs a command, whose first line of output is a port, and sets port.
background() {
	: >"$1"
	"${@:2}" >"$1" 2>&1 &
	running+=($!)
	await "a port of ${*:2}" grep -q . "$1"
	read -r port <"$1"
}

# The clients: each prints the body of a URL. $proxy is the proxy's URL, and $no what goes past it.
curl_() { curl -sS -m 60 "$1"; }
urllib() { python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=60).read().decode())' "$1"; }
go_() { "$dir/bin/get" "$1"; }
fetch_() { "${node:-node}" "$here/get.mjs" fetch "$1"; }
fetch_env() { NODE_USE_ENV_PROXY=1 fetch_ "$1"; }
http_() { "${node:-node}" "$here/get.mjs" http "$1"; }
http_env() { NODE_USE_ENV_PROXY=1 http_ "$1"; }
undici() { "${node:-node}" "$dir/npm/get.mjs" undici "$1"; }
axios() { "${node:-node}" "$dir/npm/get.mjs" axios "$1"; }
java_() {
	java -XX:TieredStopAtLevel=1 -Dhttp.proxyHost=127.0.0.1 "-Dhttp.proxyPort=${proxy##*:}" ${no:+"-Dhttp.nonProxyHosts=$no"} "$@"
}
java_client() { java_ -cp "$dir/java" Get HttpClient "$1"; }
java_connection() { java_ -cp "$dir/java" Get HttpURLConnection "$1"; }
okhttp() { java_ -cp "$dir/okhttp/okget-1.jar:$dir/okhttp/jars/*" OkGet "$1"; }
requests_() { "$python" -c 'import sys, requests; print(requests.get(sys.argv[1], timeout=60).text)' "$1"; }
urllib3() { "$python" -c 'import os, sys, urllib3; print(urllib3.ProxyManager(os.environ["http_proxy"]).request("GET", sys.argv[1], retries=False, timeout=60).data.decode())' "$1"; }
httpx() { "$python" -c 'import sys, httpx; print(httpx.get(sys.argv[1], timeout=60).text)' "$1"; }
aiohttp() {
	"$python" -c 'import sys, asyncio, aiohttp
async def main():
    async with aiohttp.ClientSession(trust_env=True) as s, s.get(sys.argv[1]) as r:
        print(await r.text())
asyncio.run(main())' "$1"
}
grpc() {
	"$python" -c 'import sys, grpc, urllib.parse as u
at = u.urlsplit(sys.argv[1])
print(grpc.insecure_channel(f"{at.hostname}:{at.port or 80}").unary_unary("/s/m")(b"", timeout=60).decode())' "$1"
}
serve_grpc='import grpc, concurrent.futures as f
class All(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"hello by remora")
server = grpc.server(f.ThreadPoolExecutor(1), handlers=[All()])
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()'

# ask CLIENT URL NO_PROXY prints how the client asks the proxy for the URL, or past if it does not.
ask() {
	local no=$3
	: >"$dir/asked"
	(
		export http_proxy=$proxy
		if [[ -n $no ]]; then export no_proxy=$no; fi
		"$1" "$2"
	) >"$dir/body" 2>"$dir/error" || true
	sort -u "$dir/asked" | grep . || echo past
}

passed=0 failed=0
# row NAMES CLIENT [HOST] compares the client with its row of the page.
row() {
	local host=${3:-app.svc.test} cells url asks row
	url=http://$host/
	asks=$(ask "$2" "$url" "")
	cells=$asks
	if [[ $asks == past ]]; then
		cells='**not at all**'
	else
		grep -q 'hello by remora' "$dir/body" || cells="$asks, $(cat "$dir/body" "$dir/error")"
		for list in "$host" .svc.test '*.svc.test'; do cells+=" | $(obeys "$2" "$url" "$list")"; done
		cells+=" | $(obeys "$2" http://224.0.0.7/ 224.0.0.0/4) | $(obeys "$2" "http://127.0.0.1:$app/" "")"
	fi
	row="| $1 | $cells |"
	if grep -qF -- "$row" docs/http-proxy.md; then
		passed=$((passed + 1))
		echo "ok   $row"
	else
		failed=$((failed + 1))
		echo "FAIL $row"
	fi
}
obeys() { if [[ $(ask "$@") == past ]]; then echo yes; else echo no; fi; }

go build -o "$dir/bin/" ./cmd/remora
go build -o "$dir/bin/get" "$here/get.go"
javac -d "$dir/java" "$here/Get.java"
port=1
if [[ -z $short ]]; then
	need npm mvn
	virtual_python http-proxy "$here/requirements.txt"
	npm install --silent --no-audit --no-fund --prefix "$dir/npm" undici@7.30.2 axios@1.21.1 node22@npm:node@22 node24@npm:node@24
	cp "$here/get.mjs" "$dir/npm"
	maven -f "$here/okhttp/pom.xml" -Dtarget="$dir/okhttp" package dependency:copy-dependencies -DoutputDirectory="$dir/okhttp/jars"
	background "$dir/grpc" "$python" -c "$serve_grpc"
fi
grpc=$port
background "$dir/app" node "$here/relay.mjs" app
app=$port
cat >"$dir/remora.yaml" <<EOF
admin: {address: ""}
listeners: [{name: egress, address: "127.0.0.1:0", protocol: http}]
routes: [{match: {host: app.svc.test}, service: app}, {match: {host: grpc.svc.test, method: [CONNECT]}, service: grpc}]
services:
  app: {discover: static, endpoints: ["127.0.0.1:$app"], protocol: http, connect_timeout: 15s}
  grpc: {discover: static, endpoints: ["127.0.0.1:$grpc"], protocol: http, connect_timeout: 15s}
EOF
"$dir/bin/remora" run -c "$dir/remora.yaml" >"$dir/log" 2>&1 &
running+=($!)
await 'the sidecar' grep -q '"address":"127.0.0.1:[0-9]*"' "$dir/log"
egress=$(grep -om1 '"address":"127.0.0.1:[0-9]*"' "$dir/log" | tr -dc '0-9:' | cut -d: -f3)
background "$dir/relay" node "$here/relay.mjs" relay "$egress" "$dir/asked"
proxy=http://127.0.0.1:$port

env='`http_proxy`'
row "curl | $env" curl_
row "Go: \`net/http\` | $env" go_
row "Python: \`urllib\` | $env" urllib
row "Java: \`HttpClient\` | \`-Dhttp.proxyHost=… -Dhttp.proxyPort=…\`" java_client
row "Java: \`HttpURLConnection\` | the same" java_connection
row "Node 20: \`fetch\`, \`http\` | $env" fetch_
row "Node 20: \`fetch\`, \`http\` | $env" http_
if [[ -z $short ]]; then
	row "Java: OkHttp 4 | the same" okhttp
	row "Python: requests | $env" requests_
	row "Python: httpx | $env" httpx
	row "Python: aiohttp | $env and \`trust_env=True\`" aiohttp
	row "Python: urllib3 | \`ProxyManager(url)\`" urllib3
	row "Python: grpc | $env" grpc grpc.svc.test
	for version in 20 22 24; do
		node=node
		if [[ $version != 20 ]]; then node=$dir/npm/node_modules/node$version/bin/node; fi
		echo "$("$node" --version):"
		row "Node: undici 7 | $env and \`EnvHttpProxyAgent\`" undici
		row "Node: axios | $env" axios
		if [[ $version != 20 ]]; then
			row "Node 22, 24: \`fetch\` | $env and \`NODE_USE_ENV_PROXY=1\`" fetch_env
			row "Node 22, 24: \`http\` | the same" http_env
		fi
	done
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
