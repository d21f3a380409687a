#!/usr/bin/env bash
# Builds the fuzz targets for OSS-Fuzz, whose builder runs it at the root of a clone and has
# compile_native_go_fuzzer_v2. It adds files to the clone. scripts/oss-fuzz.sh runs it without OSS-Fuzz.
#
#   ONLY=REGEXP   of "package target": only those that match
set -euo pipefail

# Each fuzz target, and its dictionary.
targets='
cmd/remora/inject FuzzInject yaml
internal/hostname FuzzName
lab/dubbo FuzzParse dubbo
lab/wire FuzzSplit http
protocol FuzzGRPC
protocol FuzzLoadReported
protocol FuzzTimeout
protocol/dubbo FuzzCall dubbo
protocol/dubbo FuzzDecode dubbo
protocol/dubbo FuzzHessianEncode dubbo
protocol/dubbo FuzzHessianVsLibrary dubbo
protocol/dubbo FuzzInvocation dubbo
protocol/dubbo FuzzJSON dubbo
protocol/dubbo FuzzReply dubbo
protocol/http1 FuzzBodyStream http
protocol/http1 FuzzChunked http
protocol/http1 FuzzDetector http
protocol/http1 FuzzRequest http
protocol/http1 FuzzRequestVsNetHTTP http
protocol/http1 FuzzResponse http
protocol/http1 FuzzResponseVsNetHTTP http
protocol/http1 FuzzRoundTrip http
protocol/http2 FuzzFrames http2
protocol/http2 FuzzSession http2
protocol/http2/hpack FuzzDecode http2
protocol/http2/hpack FuzzEncode http2
protocol/link FuzzIntern link
protocol/link FuzzReader link
protocol/link FuzzRoundTrip link
protocol/link FuzzTrace
proxy FuzzConversion dubbo
proxy FuzzDownstreamHTTP http
proxy FuzzDownstreamHTTP2 http2
proxy FuzzLinkAcceptor link
proxy FuzzLinkDialer link
proxy FuzzMeshHTTP http
proxy FuzzUpstreamHTTP http
proxy FuzzUpstreamHTTP2 http2
proxy/caching FuzzControl http
proxy/caching FuzzMatch http
proxy/caching/store FuzzStore
proxy/config FuzzLay yaml
proxy/config FuzzParse yaml
proxy/config FuzzValue yaml
proxy/downstream/dubbo FuzzDownstreamDubbo dubbo
proxy/downstream/dubbo FuzzUpstreamDubbo dubbo
proxy/mux/httpstream FuzzReader http
proxy/mux/httpstream FuzzRoundTrip http
proxy/proxyproto FuzzDecode
proxy/reactor/hello FuzzReader
proxy/route FuzzQuery
proxy/telemetry/accesslog FuzzEscape
proxy/telemetry/trace FuzzParse
registry FuzzCache
registry FuzzParseAddr
registry/dns FuzzNote
registry/etcd FuzzValue
registry/zookeeper FuzzRecords
registry/zookeeper/session FuzzMessages
'

module=$(go list -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A Go that another Go has downloaded is read-only, and takes no overlay.
goroot=$(go env GOROOT)
if [[ $goroot == "$(go env GOMODCACHE)"/* ]]; then
	cp -r "$goroot" "$work/go"
	chmod -R u+w "$work/go"
	goroot=$work/go
	export GOROOT=$goroot PATH=$goroot/bin:$PATH GOTOOLCHAIN=local
fi

cp oss-fuzz/dictionaries/*.dict "$work"
# The keys of the configuration.
sed -nE 's/^ *("[a-z_]+"): \{.*/\1/p' docs/remora.schema.json | sort -u >>"$work/yaml.dict"

# Package testing of the seeds writes each.
run='\trun := func(captureOut io.Writer, e corpusEntry) (ok bool) {'
sed "s/^$run\$/&writeSeed(e.Values)/" "$goroot/src/testing/fuzz.go" >"$work/fuzz.go"
grep -q writeSeed "$work/fuzz.go" || { echo "$0: this Go runs seeds in another way" >&2 && exit 1; }
printf '{"Replace": {"%s/fuzz.go": "%s/fuzz.go", "%s/seeds.go": "%s/oss-fuzz/seeds.go"}}' \
	"$goroot/src/testing" "$work" "$goroot/src/testing" "$PWD" >"$work/overlay.json"

# folder PACKAGE TARGET sets folder to that of the target. The builder takes tests only as a part of
# their package: those of a package x_test become the package of a folder of their own.
folder() {
	folder=$1
	if ! grep -qE '^package \w+_test$' "$(grep -lE "^func $2\\(" "$1"/*_test.go)"; then return; fi
	folder=$1/ossfuzz
	if [[ -d $folder ]]; then return; fi
	mkdir "$folder"
	for file in $(go list -f '{{join .XTestGoFiles " "}}' "./$1"); do
		sed -E 's/^package \w+_test$/package ossfuzz/' "$1/$file" >"$folder/$file"
	done
	if [[ -d $1/testdata ]]; then cp -r "$1/testdata" "$folder"; fi
	if [[ -e $1/export_test.go ]]; then mv "$1/export_test.go" "$1/export_ossfuzz.go"; fi
}

# seeds PACKAGE TARGET NAME zips the seeds of a target.
seeds() {
	mkdir "$work/$3"
	FUZZ_SEEDS=$work/$3 go test -overlay "$work/overlay.json" -tags oss_fuzz_seeds -count=1 -run "^$2\$" "$module/$1"
	(cd "$work/$3" && zip --quiet --recurse-paths "$OUT/$3_seed_corpus.zip" .)
}

while read -r package target dictionary; do
	if [[ -z $package || ! "$package $target" =~ ${ONLY:-.} ]]; then continue; fi
	name=${package//\//_}_$target
	folder "$package" "$target"
	seeds "$folder" "$target" "$name"
	compile_native_go_fuzzer_v2 "$module/$folder" "$target" "$name"
	if [[ -n $dictionary ]]; then cp "$work/$dictionary.dict" "$OUT/$name.dict"; fi
done <<<"$targets"
