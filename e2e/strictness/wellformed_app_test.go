package strictness

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// A WebSocket client's key, and what a server makes of it (RFC 6455 section 1.3). HAProxy compares them.
const (
	webSocketKey    = "dGhlIHNhbXBsZSBub25jZQ=="
	webSocketAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)

// proxyPause is how long a proxy has to act before the application does.
const proxyPause = time.Second

// wellFormedApp is an application behind a proxy. Each path needs something of HTTP that proxies treat
// differently.
type wellFormedApp struct {
	addr   string
	resume chan struct{} // lets a request of /expect or /refuse go on
}

func startWellFormedApp(t *testing.T) *wellFormedApp {
	t.Helper()
	a := &wellFormedApp{resume: make(chan struct{}, 1)}
	a.addr = serve(t, "127.0.0.1:0", http.HandlerFunc(a.respond))
	return a
}

// serve starts a server of HTTP/1.1, and returns its address.
func serve(t *testing.T, addr string, h http.Handler) string {
	t.Helper()
	l := must.ListenOn(t, "tcp", addr)
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}

func (a *wellFormedApp) respond(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/slow":
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done(): // the proxy has left
		case <-time.After(proxyPause):
		}
	case "/hints":
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
	case "/processing":
		w.WriteHeader(http.StatusProcessing)
	case "/expect":
		<-a.resume
		_, _ = io.Copy(io.Discard, r.Body)
	case "/refuse":
		<-a.resume
		w.WriteHeader(http.StatusForbidden)
		return
	case "/upgrade":
		a.upgrade(w, r)
		return
	}
	fmt.Fprintf(w, "Host=%s Via=%s", r.Host, r.Header.Get("Via"))
}

// upgrade reads the body, and switches to another protocol if it is asked to.
func (a *wellFormedApp) upgrade(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.Header.Get("Upgrade") == "" {
		fmt.Fprint(w, "Upgrade is missing")
		return
	}
	nc, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer nc.Close()
	fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		r.Header.Get("Upgrade"), webSocketAccept)
}
