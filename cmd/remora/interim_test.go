package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
)

// hintingApp is an application that sends interim responses.
func hintingApp(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/late" { // only when it has the whole request
		_, _ = io.Copy(io.Discard, r.Body)
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// TestInterimResponses: an application's interim responses reach its clients, over both protocols and
// over links.
func TestInterimResponses(t *testing.T) {
	addrs := freeAddrs(t, 6)
	var listeners, services, links, local strings.Builder
	for i, speaks := range []string{"http", "http2"} {
		app := startHintingApp(t, speaks == "http2")
		for _, to := range []*strings.Builder{&services, &local} {
			fmt.Fprintf(to, "  %s: {discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, timeout: 2m, hedge: {mode: on, delay: 1ms}}\n", speaks, app, speaks)
		}
		fmt.Fprintf(&services, "  linked-%s: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}\n", speaks, addrs[4+i])
		fmt.Fprintf(&links, "  - {name: %s, address: %q, protocol: link, service: %s}\n", speaks, addrs[4+i], speaks)
		fmt.Fprintf(&listeners, "  - {name: %s, address: %q, protocol: http, service: %s}\n", speaks, addrs[2*i], speaks)
		fmt.Fprintf(&listeners, "  - {name: linked-%s, address: %q, protocol: http, service: linked-%s}\n", speaks, addrs[2*i+1], speaks)
	}
	const head = "loops: 1\nlimits: {message: 64KiB}\n"
	startRemora(t, head+"listeners:\n"+links.String()+"services:\n"+local.String()).ready()
	startRemora(t, head+"listeners:\n"+listeners.String()+"services:\n"+services.String()).ready()

	for i, to := range []string{"http", "linked http", "http2", "linked http2"} {
		for _, version := range []string{"1.1", "2"} {
			tr := &http.Transport{Protocols: new(http.Protocols)}
			tr.Protocols.SetHTTP1(version == "1.1")
			tr.Protocols.SetUnencryptedHTTP2(version == "2")
			t.Cleanup(tr.CloseIdleConnections)
			for _, c := range interimCases {
				req := newRequest(t, c.method, "http://"+addrs[i]+c.path, bytes.NewReader(make([]byte, c.body)))
				if c.path == "/grpc" {
					req.Header.Set("Content-Type", "application/grpc")
				}
				if got := interimsOf(t, tr, req); got != c.want {
					t.Errorf("HTTP/%s to %s, %s: got %s, want %s", version, to, c.name, got, c.want)
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
