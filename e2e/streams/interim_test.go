package streams

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// hintingApp is an application that sends interim responses.
func hintingApp(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/late": // only when it has the whole request
		_, _ = io.Copy(io.Discard, r.Body)
	case "/refuse":
		w.WriteHeader(http.StatusExpectationFailed)
		return
	case "/quiet":
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
		return
	}
	w.Header()["Link"] = []string{"</a.css>; rel=preload", "</b.js>; rel=preload"}
	w.Header().Set("X-Remora-Error", "forged")
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Del("Link")
	w.WriteHeader(http.StatusProcessing)
	w.Header().Del("X-Remora-Error")
	n, _ := io.Copy(io.Discard, r.Body)
	fmt.Fprint(w, n)
	if r.URL.Path == "/endless" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

func startHintingApp(t *testing.T, http2 bool) string {
	t.Helper()
	l := must.Listen(t)
	srv := &http.Server{
		Handler: http.HandlerFunc(hintingApp), Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0),
	}
	srv.Protocols.SetHTTP1(!http2)
	srv.Protocols.SetUnencryptedHTTP2(http2)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}

const hints = "103[</a.css>; rel=preload </b.js>; rel=preload] 102[]"

var interimCases = []struct {
	name, method, path string
	body               int
	want               string
}{
	{"GET", "GET", "/", 0, hints + " 200 0"},
	{"HEAD", "HEAD", "/", 0, hints + " 200 "},
	{"a short body", "POST", "/", 100, hints + " 200 100"},
	{"a stream", "POST", "/", 128 << 10, hints + " 200 131072"},
	{"a stream, after its end", "POST", "/late", 128 << 10, hints + " 200 0"},
	{"a response that is a stream", "GET", "/endless", 0, hints + " 200 0..."},
	{"a gRPC call", "POST", "/grpc", 5, hints + " 200 5"},
}

// expectCases are of clients that wait with their body. Whoever tells them to send it, an application that
// refuses the request does not.
var expectCases = []struct {
	name, path          string
	body                int
	answered, forwarded string // with expect: answer, and with expect: forward
}{
	{"a short body", "/quiet", 100, "100[] 200 100", "100[] 200 100"},
	{"a stream", "/quiet", 128 << 10, "100[] 200 131072", "100[] 200 131072"},
	{"a short body that is refused", "/refuse", 100, "100[] 417 ", "417 "},
	{"a stream that is refused", "/refuse", 128 << 10, "417 ", "417 "},
}

// TestInterimResponses: an application's interim responses reach its clients, over both protocols and
// over links.
func TestInterimResponses(t *testing.T) {
	const paths = 8 // ways to the applications
	addrs := harness.FreeAddrs(t, paths+2)
	var listeners, services, links, local strings.Builder
	for i, speaks := range []string{"http", "http2"} {
		app := startHintingApp(t, speaks == "http2")
		for _, to := range []*strings.Builder{&services, &local} {
			fmt.Fprintf(to, "  %s: {discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, timeout: 2m, hedge: {mode: on, delay: 1ms}}\n", speaks, app, speaks)
		}
		fmt.Fprintf(&services, "  linked-%s: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}\n", speaks, addrs[paths+i])
		fmt.Fprintf(&links, "  - {name: %s, address: %q, protocol: link, service: %s}\n", speaks, addrs[paths+i], speaks)
		for j, service := range []string{speaks, "linked-" + speaks} {
			for k, expect := range []string{"answer", "forward"} {
				fmt.Fprintf(&listeners, "  - {name: %s-%s, address: %q, protocol: http, service: %s, expect: %s}\n",
					service, expect, addrs[4*i+2*j+k], service, expect)
			}
		}
	}
	const head = "loops: 1\nlimits: {message: 64KiB}\n"
	harness.Start(t, head+"listeners:\n"+links.String()+"services:\n"+local.String()).Ready()
	harness.Start(t, head+"listeners:\n"+listeners.String()+"services:\n"+services.String()).Ready()

	for i, to := range []string{"http", "http, forward", "linked http", "linked http, forward",
		"http2", "http2, forward", "linked http2", "linked http2, forward"} {
		for _, version := range []string{"1.1", "2"} {
			tr := harness.Transport(t, version)
			for _, c := range interimCases {
				req := must.Request(t, c.method, "http://"+addrs[i]+c.path, bytes.NewReader(make([]byte, c.body)))
				if c.path == "/grpc" {
					req.Header.Set("Content-Type", "application/grpc")
				}
				if got := interimsOf(t, tr, req); got != c.want {
					t.Errorf("HTTP/%s to %s, %s: got %s, want %s", version, to, c.name, got, c.want)
				}
			}
			for _, c := range expectCases {
				req := must.Request(t, "POST", "http://"+addrs[i]+c.path, bytes.NewReader(make([]byte, c.body)))
				req.Header.Set("Expect", "100-continue")
				want := []string{c.answered, c.forwarded}[i%2]
				if got := interimsOf(t, tr, req); got != want {
					t.Errorf("HTTP/%s to %s, %s: got %s, want %s", version, to, c.name, got, want)
				}
			}
		}
	}
}

// interimsOf sends req, and returns the interim responses with their links, the final status, and what is
// first of its body.
func interimsOf(t *testing.T, tr *http.Transport, req *http.Request) string {
	t.Helper()
	var got strings.Builder
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		fmt.Fprintf(&got, "%d%s ", code, h["Link"])
		if len(h["X-Remora-Error"]) > 0 {
			fmt.Fprint(&got, "forged ")
		}
		return nil
	}}
	resp, err := tr.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		return got.String() + err.Error()
	}
	defer resp.Body.Close()
	fmt.Fprint(&got, resp.StatusCode, " ")
	if strings.HasSuffix(req.URL.Path, "/endless") {
		first := make([]byte, 1)
		_, err = io.ReadFull(resp.Body, first)
		fmt.Fprintf(&got, "%s...", first)
	} else {
		_, err = io.Copy(&got, resp.Body)
	}
	if err != nil {
		fmt.Fprint(&got, " ", err)
	}
	return got.String()
}
