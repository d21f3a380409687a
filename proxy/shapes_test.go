package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// shape is a kind of request, with the settings of its sidecars.
type shape struct {
	name   string
	o      proxytest.AllocMeshOptions
	pieces []string // of the request, one for each read
}

const unsampled = `tracing: {endpoint: "http://192.0.2.1:4318", sample: 0}`

// observed logs and traces the same shares of requests as remora-lab bench.
const observed = `access_log: {path: /log, buffer: 64KiB, sample: 0.01}
tracing: {endpoint: "http://192.0.2.1:4318", sample: 0.001}`

// conditional is routes with each kind of condition, the last of which changes the host and headers.
const conditional = `
  - {match: {host: "*.a.svc"}, redirect: {host: b}}
  - {match: {host: "*.svc", regex: "/v(2|3)+/.*"}, service: compute}
  - {match: {host: "*.svc", query: {b: {prefix: "1"}}, header: {x-tier: {regex: "g.*"}, x-none: {not: a}}}, service: compute, rewrite: {host: b},
     request_headers: {set: {x-tier: "{host} {path}"}, remove: [x-gone]}, response_headers: {add: {x-path: "{path} {request_id}"}}}`

// keyed returns the options of a consumer's service that picks by key.
func keyed(hash, service string) proxytest.AllocMeshOptions {
	return proxytest.AllocMeshOptions{
		Response: proxytest.ShapeResponseHead + proxytest.ShapeBody,
		Service:  proxytest.Fields("lb: {policy: consistent_hash, hash: {"+hash+"}}", service),
	}
}

// shapes returns the kinds of HTTP requests whose cost is bounded, for one sidecar or two:
// their allocations by TestAllocationsPerRequest, the instructions of some of them by
// scripts/cost.sh.
func shapes() []shape {
	body := strings.Repeat("x", 300)
	fixed := proxytest.ShapeResponseHead + proxytest.ShapeBody
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nc8\r\n" + proxytest.ShapeBody + "\r\n0\r\n\r\n"
	session := config.Sticky{Cookie: "srv", Secret: "0123456789abcdef"}
	sticky := proxytest.AllocMeshOptions{Response: fixed, Service: fmt.Sprintf("lb: {sticky: {cookie: %s, secret: %q}}", session.Cookie, session.Secret)}
	const finish = "cancel: finish"                         // else losers' connections are replaced, and new ones take memory
	pin := affinity.NewSticky(&session).ID("10.0.0.1:8080") // an application of the mesh
	return []shape{
		{"POST", proxytest.AllocMeshOptions{Response: fixed}, []string{postHead + body}},
		{"GET", proxytest.AllocMeshOptions{Response: fixed}, []string{proxytest.GetHead}},
		{"HTTP2", proxytest.AllocMeshOptions{Speaks: "http2", Frames: http2Response}, []string{postHead + body}},
		{"GET, hedging off", proxytest.AllocMeshOptions{Response: fixed, Service: "hedge: {mode: off}"}, []string{proxytest.GetHead}},
		{"in pieces", proxytest.AllocMeshOptions{Response: fixed}, []string{postHead[:50], postHead[50:], body[:100], body[100:]}},
		{"chunked", proxytest.AllocMeshOptions{Response: chunked}, []string{
			"POST /c HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\n12c\r\n", body + "\r\n0\r\n\r\n"}},
		{"forwarded before", proxytest.AllocMeshOptions{Response: fixed}, []string{forwardedHead}},
		{"timed", proxytest.AllocMeshOptions{Response: fixed}, []string{strings.Replace(postHead, "\r\n", "\r\nx-remora-timeout-ms: 2000\r\n", 1) + body}},
		{"timeout header", proxytest.AllocMeshOptions{Response: fixed, Service: "timeout_header: true", Provider: "timeout_header: true"},
			[]string{postHead + body}},
		{"limited", proxytest.AllocMeshOptions{Response: fixed,
			Service: "max_concurrency: 4", Provider: "max_concurrency: 1"}, []string{postHead + body}},
		{"limited automatically", proxytest.AllocMeshOptions{Response: fixed, Provider: "max_concurrency: auto"}, []string{postHead + body}},
		{"guarded", proxytest.AllocMeshOptions{Response: fixed,
			Service: "rate_limit: {rate: 1000000}, breaker: {consecutive: 5}"}, []string{postHead + body}},
		{"hedging on", proxytest.AllocMeshOptions{Response: fixed, Service: "idempotent: true, hedge: {mode: on}"}, []string{postHead + body}},
		{"hedging by class", proxytest.AllocMeshOptions{Response: fixed, Service: "idempotent: true, hedge: {mode: on}"},
			[]string{strings.Replace(postHead, "\r\n", "\r\nx-remora-class: bulk\r\n", 1) + body}},
		{"logged", proxytest.AllocMeshOptions{Response: fixed, Top: "access_log: {path: /log, buffer: 64KiB}"}, []string{proxytest.GetHead}},
		{"observed", proxytest.AllocMeshOptions{Response: fixed, Top: observed, Allocs: 0.02}, []string{postHead + body}},
		{"shadow", proxytest.AllocMeshOptions{Response: fixed, Service: "idempotent: true, hedge: {mode: shadow, sample: 1}"}, []string{postHead + body}},
		{"hedged", proxytest.AllocMeshOptions{Response: fixed, Late: true, Provider: finish,
			Service: finish + ", idempotent: true, hedge: {mode: on, delay: 5ms, budget: 1}"}, []string{postHead + body}},
		{"traced, not sampled", proxytest.AllocMeshOptions{Response: fixed, Top: unsampled}, []string{postHead + body}},
		{"traced, not sampled by the caller", proxytest.AllocMeshOptions{Response: fixed, Top: unsampled}, []string{
			"GET / HTTP/1.1\r\nHost: compute\r\nTraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\r\n\r\n"}},
		{"by conditions, edited", proxytest.AllocMeshOptions{Response: fixed, Routes: conditional}, []string{
			"GET /v1/a?b=%31 HTTP/1.1\r\nHost: a.svc\r\nX-Tier: gold\r\n\r\n"}},
		{"keyed by header, hedging on", keyed("header: x-key", "idempotent: true, hedge: {mode: on}"), []string{
			"GET / HTTP/1.1\r\nHost: compute\r\nX-Key: a\r\n\r\n"}},
		{"keyed by cookie", keyed("cookie: sid, ttl: 1h", ""), []string{"GET / HTTP/1.1\r\nHost: compute\r\nCookie: a=b; sid=c\r\n\r\n"}},
		{"new session", keyed("cookie: sid, ttl: 1h", ""), []string{proxytest.GetHead}},
		{"sticky", sticky, []string{"GET / HTTP/1.1\r\nHost: compute\r\nCookie: a=b; srv=" + pin + "; c=d\r\n\r\n"}},
		{"new sticky session", sticky, []string{proxytest.GetHead}},
		{"keyed by query", keyed("query: k", ""), []string{"GET /?a=b&k=c HTTP/1.1\r\nHost: compute\r\n\r\n"}},
		{"keyed by path", keyed("path: true", ""), []string{proxytest.GetHead}},
		{"keyed by source", keyed("source: true", ""), []string{proxytest.GetHead}},
		{"hedged, in a trace", proxytest.AllocMeshOptions{Response: fixed, Late: true, Top: unsampled, Provider: finish,
			Service: finish + ", idempotent: true, hedge: {mode: on, delay: 5ms, budget: 1}"}, []string{
			"GET / HTTP/1.1\r\nHost: compute\r\nTraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\r\nTracestate: a=b\r\n\r\n"}},
		// Last, since its small buffers make the pool of all shapes expect small ones.
		{"fallback", proxytest.AllocMeshOptions{Routes: "  - {match: {path: /down}, service: compute, fault: {abort: 503}, " +
			"fallback: {on: [5xx], respond: {body: " + proxytest.ShapeBody + ", headers: {x-down: \"1\"}}}}"}, []string{"GET /down HTTP/1.1\r\nHost: compute\r\n\r\n"}},
	}
}

// cachedShape is a request whose response is in the cache. It is no shape of all, since it needs few of
// the buffers by which bytebufferpool decides about the size of the next ones.
func cachedShape() shape {
	o := proxytest.AllocMeshOptions{Response: proxytest.ShapeResponseHead + proxytest.ShapeBody, Route: "cache: {ttl: 1h}"}
	return shape{"cached", o, []string{proxytest.GetHead}}
}

// BenchmarkShape measures the shapes through one sidecar or two. internal/cost uses the
// names of its sub-benchmarks.
func BenchmarkShape(b *testing.B) {
	const clients = 64
	for hops := 1; hops <= 2; hops++ {
		way := [...]string{1: "1 hop", 2: "2 hops"}[hops]
		for _, s := range append(shapes(), cachedShape()) {
			b.Run(fmt.Sprintf("%s/%s", way, s.name), func(b *testing.B) {
				s.o.Hops, s.o.Clients = hops, clients
				m := proxytest.NewAllocMesh(b, s.o)
				response, pieces := []byte(proxytest.ShapeBody), bytesOf(s.pieces)
				for n := 0; n < b.N; n += clients {
					m.Call(response, pieces...)
				}
			})
		}
		for _, s := range http2Shapes() {
			b.Run(way+"/"+s.name, func(b *testing.B) {
				const streams = 8
				l := newHTTP2Load(b, s, hops, clients/streams, streams, "")
				for n := 0; n < b.N; n += clients {
					l.call()
				}
			})
		}
		b.Run(way+"/Dubbo", func(b *testing.B) {
			m := proxytest.NewDubboAllocMesh(b, hops, clients, "http", dubboValue)
			response, post := []byte("\r\n\r\n-1234567890"), dubboForm()
			for n := 0; n < b.N; n += clients {
				m.Call(response, post)
			}
		})
	}
}

func bytesOf(texts []string) (bs [][]byte) {
	for _, t := range texts {
		bs = append(bs, []byte(t))
	}
	return bs
}

// dubboValue is the response to the call of dubboForm.
var dubboValue = dubbo.Frame{Serialization: dubbo.Fastjson, Status: dubbo.StatusOK, Body: []byte("1\n-1234567890\n")}

func dubboForm() []byte {
	form := "interface=com.acme.Demo&method=hash&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=" + strings.Repeat("x%20", 40)
	return fmt.Appendf(nil, "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: %d\r\n\r\n%s", len(form), form)
}
