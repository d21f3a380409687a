package endpoints

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// report is a message with which other proxies had trouble, and what passes of it.
type report struct {
	name     string // with the repository and number of a report
	request  string // as the client sends it
	response string // as the application sends it
	sees     []string
	not      []string // not in what the application sees
	gets     []string // in what the HTTP/1.1 client gets
	never    []string // not in that
	cut      bool     // the application's connection ends after the response
	ends     bool     // the response is the last one on the connection
}

func (r *report) path() string {
	return r.request[strings.IndexByte(r.request, ' ')+1 : strings.Index(r.request, " HTTP/")]
}

// status is that of the response to the client.
func (r *report) status() string {
	if r.response == "" || r.cut {
		return "502"
	}
	return strings.Fields(r.response)[1]
}

const plainOK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

var reports = []report{
	{
		name:     "HEAD, and a response with a coding: haproxy#2836",
		request:  "HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Kept: yes\r\n\r\n",
		gets:     []string{"200 OK", "X-Kept: yes"}, never: []string{"\n0\r\n"},
	},
	{
		name:     "an empty query: traefik#4047",
		request:  "GET /posts/1? HTTP/1.1\r\nHost: a\r\n\r\n",
		response: plainOK,
		sees:     []string{"GET /posts/1? HTTP/1.1\r\n"},
	},
	{
		name:     "semicolons in a query: traefik#9164",
		request:  "GET /odata?a=1;b=2&c=3;;d HTTP/1.1\r\nHost: a\r\n\r\n",
		response: plainOK,
		sees:     []string{"GET /odata?a=1;b=2&c=3;;d HTTP/1.1\r\n"},
	},
	{
		name:     "parameters in a path, with an escaped slash: traefik#13230",
		request:  "GET /signin;returnPath=%2Ftrack HTTP/1.1\r\nHost: a\r\n\r\n",
		response: plainOK,
		sees:     []string{"GET /signin;returnPath=%2Ftrack HTTP/1.1\r\n"},
	},
	{
		name:     "several Set-Cookie with commas: envoy#7488, h2o#3120",
		request:  "GET /cookies HTTP/1.1\r\nHost: a\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Expires=Sat, 01 Oct 2033 06:59:47 GMT\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok",
		gets:     []string{"Set-Cookie: a=1; Expires=Sat, 01 Oct 2033 06:59:47 GMT\r\n", "Set-Cookie: b=2\r\n"},
	},
	{
		name:     "Upgrade in a response that does not switch: envoy#10566",
		request:  "GET /h2c HTTP/1.1\r\nHost: a\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nUpgrade: h2,h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nok",
		gets:     []string{"200 OK", "\r\n\r\nok"}, never: []string{"pgrade"},
	},
	{
		name:     "GET with a chunked body: linkerd2#3310",
		request:  "GET /_mget HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n3\r\n:1}\r\n0\r\n\r\n",
		response: plainOK,
		sees:     []string{"{\"a\":1}"},
	},
	{
		name:     "GET without a body: linkerd2#402",
		request:  "GET /bare HTTP/1.1\r\nHost: a\r\n\r\n",
		response: plainOK,
		not:      []string{"ontent-", "ransfer-", "Expect"},
	},
	{
		name:     "names of headers in capitals, or with other marks: linkerd2#2878, #3964",
		request:  "GET /case HTTP/1.1\r\nHost: a\r\nX-CamelCase-ID: 1\r\nx_under_score: 2\r\nSOAPAction: \"\"\r\nX-Empty:\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nX-PascalCase-ID: 1\r\nContent-MD5: x\r\nContent-Length: 2\r\n\r\nok",
		sees:     []string{"X-CamelCase-ID: 1\r\n", "x_under_score: 2\r\n", "SOAPAction: \"\"\r\n", "X-Empty:"},
		gets:     []string{"X-PascalCase-ID: 1\r\n", "Content-MD5: x\r\n"},
	},
	{
		name:     "a head of 40 KB from the application: api.data.gov#461 (nginx)",
		request:  "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nSet-Cookie: a=" + strings.Repeat("x", 40_000) + "; path=/\r\nContent-Length: 2\r\n\r\nok",
		gets:     []string{strings.Repeat("x", 40_000) + "; path=/\r\n"},
	},
	{
		name:     "a reason of the application's own: caddy#4454",
		request:  "GET /reason HTTP/1.1\r\nHost: a\r\n\r\n",
		response: "HTTP/1.1 500 foo bar baz\r\nContent-Length: 2\r\n\r\nok",
		gets:     []string{"HTTP/1.1 500 foo bar baz\r\n"},
	},
	{
		name:     "no reason: caido#1639",
		request:  "GET /noreason HTTP/1.1\r\nHost: a\r\n\r\n",
		response: "HTTP/1.1 200\r\nX-First: yes\r\nContent-Length: 2\r\n\r\nok",
		gets:     []string{"HTTP/1.1 200", "X-First: yes\r\n"},
	},
	{
		name:     "a status that has no name",
		request:  "GET /status HTTP/1.1\r\nHost: a\r\n\r\n",
		response: "HTTP/1.1 499 Mine\r\nContent-Length: 2\r\n\r\nok",
		gets:     []string{"HTTP/1.1 499 Mine\r\n"},
	},
	{
		name:     "204 leaves the connection open: haproxy#3073",
		request:  "DELETE /204 HTTP/1.1\r\nHost: a\r\n\r\n",
		response: "HTTP/1.1 204 No Content\r\n\r\n",
		gets:     []string{"204 No Content"}, never: []string{"ontent-Length", "ransfer-", "close"},
	},
	{
		name:     "an application that says nothing: the error leaves the connection open: haproxy#891",
		request:  "POST /silent HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab",
		response: "",
		gets:     []string{"502 Bad Gateway"}, never: []string{"close"},
	},
	{
		name:     "chunks with trailers: nginx#1115",
		request:  "GET /trailers HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n",
		gets:     []string{"X-Sum: 7\r\n"},
	},
	{
		name:     "304 with a length: haproxy#27",
		request:  "GET /304 HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"a\"\r\n\r\n",
		response: "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 1234\r\n\r\n",
		gets:     []string{"304 Not Modified", "ETag: \"a\"\r\n"}, never: []string{"ransfer-"},
	},
	{
		name:     "a client of HTTP/1.0 that stays: envoy#9797, hyper#1614",
		request:  "GET /ab HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		gets:     []string{"Connection: keep-alive\r\n", "Content-Length: 2\r\n", "\r\n\r\nok"}, never: []string{"ransfer-"},
	},
	{
		name:     "a client of HTTP/1.0 that leaves: node-http-proxy#407",
		request:  "GET /wget HTTP/1.0\r\nHost: a\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		gets:     []string{"Connection: close\r\n", "\r\n\r\nok"}, never: []string{"ransfer-"},
		ends: true,
	},
	{
		name:     "deadlines that overflow: grpc-gateway#7382",
		request:  "GET /late HTTP/1.1\r\nHost: a\r\ngrpc-timeout: 99999999H\r\nx-envoy-expected-rq-timeout-ms: 99999999999999999999\r\n\r\n",
		response: plainOK,
		gets:     []string{"200 OK"},
	},
	{
		name:     "an application that leaves within a length: envoy#36200",
		request:  "POST /cut HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab",
		response: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok",
		cut:      true,
		gets:     []string{"502 Bad Gateway"},
	},
	{
		name:     "values beyond ASCII",
		request:  "GET /latin HTTP/1.1\r\nHost: a\r\nX-City: M\xfcnchen, 京都\r\n\r\n",
		response: "HTTP/1.1 200 OK\r\nX-City: M\xfcnchen, 京都\r\nContent-Length: 2\r\n\r\nok",
		sees:     []string{"X-City: M\xfcnchen, 京都\r\n"},
		gets:     []string{"X-City: M\xfcnchen, 京都\r\n"},
	},
}

// reportApp responds as the report says whose path a request has, and records the bytes of requests.
type reportApp struct {
	addr string
	seen chan string
}

func startReportApp(t *testing.T) *reportApp {
	t.Helper()
	a := &reportApp{seen: make(chan string, 16)}
	a.addr = harness.ServeTCP(t, a.serve)
	return a
}

func (a *reportApp) serve(nc net.Conn) {
	var heard bytes.Buffer
	in := bufio.NewReader(io.TeeReader(nc, &heard))
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		response, cut := plainOK, false
		for i := range reports {
			if reports[i].path() == req.RequestURI {
				response, cut = reports[i].response, reports[i].cut
				a.seen <- heard.String() + string(body)
			}
		}
		heard.Reset()
		if response == "" {
			return
		}
		if _, err := io.WriteString(nc, response); err != nil {
			return
		}
		if cut {
			return
		}
	}
}

// TestReportsOfOtherProxies sends what other proxies had trouble with through one sidecar and through two, and then
// another request on the same connection.
func TestReportsOfOtherProxies(t *testing.T) {
	app := startReportApp(t)
	ways := reportSidecars(t, app.addr)
	for way, addr := range ways {
		t.Run(way, func(t *testing.T) {
			for i := range reports {
				r := &reports[i]
				t.Run(r.name, func(t *testing.T) { r.send(t, app, addr) })
			}
		})
	}
}

func (r *report) send(t *testing.T, app *reportApp, addr string) {
	nc := harness.Dial(t, "tcp", addr)
	defer nc.Close()
	must.Write(t, nc, r.request)
	var got bytes.Buffer
	in := bufio.NewReader(io.TeeReader(nc, &got))
	method, _, _ := strings.Cut(r.request, " ")
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err != nil {
		t.Fatalf("%v after %q", err, got.String())
	}
	seen := harness.Receive(t, "the request", app.seen)
	check := func(who, text string, has, lacks []string) {
		for _, want := range has {
			if !strings.Contains(text, want) {
				t.Errorf("%s got no %.60q: %.400q", who, want, text)
			}
		}
		for _, want := range lacks {
			if strings.Contains(text, want) {
				t.Errorf("%s got %.60q: %.400q", who, want, text)
			}
		}
	}
	check("the application", seen, r.sees, r.not)
	check("the client", got.String(), r.gets, r.never)
	if r.ends {
		return
	}
	fmt.Fprint(nc, "GET /after HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, err = http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the next request on the connection: %v after %q", err, got.String())
	}
}

// TestReportsOverHTTP2 is TestReportsOfOtherProxies for clients of HTTP/2, which get the same status, body and trailers.
func TestReportsOverHTTP2(t *testing.T) {
	app := startReportApp(t)
	for way, addr := range reportSidecars(t, app.addr) {
		client := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
		client.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
		for i := range reports {
			r := &reports[i]
			req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(r.request)))
			if err != nil {
				t.Fatal(err)
			}
			req.URL.Scheme, req.URL.Host, req.RequestURI = "http", addr, ""
			req.Header.Del("Connection")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s: %s: %v", way, r.name, err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil && resp.StatusCode != http.StatusNotModified { // net/http misses the body of the length
				t.Fatalf("%s: %s: %v", way, r.name, err)
			}
			harness.Receive(t, "the request", app.seen)
			want := r.status()
			if got := fmt.Sprint(resp.StatusCode); got != want {
				t.Errorf("%s: %s: status %s, want %s", way, r.name, got, want)
			}
			if want == "200" && req.Method == http.MethodGet && string(body) != "ok" {
				t.Errorf("%s: %s: body %q", way, r.name, body)
			}
			if strings.Contains(r.response, "Trailer:") && resp.Trailer.Get("X-Sum") != "7" {
				t.Errorf("%s: %s: trailers %v", way, r.name, resp.Trailer)
			}
		}
	}
}

// reportSidecars are the ways to an application, at the default limits, by the addresses where they begin.
func reportSidecars(t *testing.T, app string) map[string]string {
	start := func(listen, upstream, endpoint string) (addr string) {
		addr = harness.FreeAddrs(t, 1)[0]
		harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: in, address: %q, protocol: %s, service: out}]
services: {out: {discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, timeout: 2m}}`,
			addr, listen, endpoint, upstream)).Ready()
		return addr
	}
	return map[string]string{"one": start("http", "http", app), "two": start("http", "link", start("link", "http", app))}
}
