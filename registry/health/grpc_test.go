package health

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/remora-proxy/remora/internal/must"
)

// serveHealth starts a grpc-go server at l.
func serveHealth(t *testing.T, l net.Listener, o ...grpc.ServerOption) *health.Server {
	t.Helper()
	srv, state := grpc.NewServer(o...), health.NewServer()
	healthpb.RegisterHealthServer(srv, state)
	state.SetServingStatus("shop.Cart", healthpb.HealthCheckResponse_SERVING)
	state.SetServingStatus("shop.Sick", healthpb.HealthCheckResponse_NOT_SERVING)
	state.SetServingStatus("shop.Odd", healthpb.HealthCheckResponse_UNKNOWN)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() { srv.Stop(); <-done })
	return state
}

func listen(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l := must.ListenOn(t, network, addr)
	return l
}

// TestAskGRPC asks servers of grpc-go, in the clear, by TLS and at a Unix socket, and others.
func TestAskGRPC(t *testing.T) {
	plain, socket := listen(t, "tcp", "127.0.0.1:0"), listen(t, "unix", filepath.Join(t.TempDir(), "s"))
	serveHealth(t, plain)
	serveHealth(t, socket)
	front := httptest.NewTLSServer(nil) // for its certificate
	defer front.Close()
	secured := listen(t, "tcp", "127.0.0.1:0")
	serveHealth(t, secured, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: front.TLS.Certificates})))
	bare := listen(t, "tcp", "127.0.0.1:0")
	noHealth := grpc.NewServer()
	go func() { _ = noHealth.Serve(bare) }()
	defer noHealth.Stop()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	silent := listen(t, "tcp", "127.0.0.1:0")
	defer silent.Close()

	up, unix := plain.Addr().String(), "unix:"+socket.Addr().String()
	for _, c := range []struct {
		service, addr string
		secure        bool
		want          string // in the error; "" means no error
	}{
		{"/", up, false, ""},
		{"shop.Cart", up, false, ""},
		{"shop.Cart", unix, false, ""},
		{"shop.Cart", secured.Addr().String(), true, ""},
		{"shop.Sick", up, false, "NOT_SERVING"},
		{"shop.Odd", up, false, ": UNKNOWN"},
		{"shop.None", up, false, `grpc-status "5": "unknown service"`},
		{"shop.Sick", secured.Addr().String(), true, "NOT_SERVING"},
		{"shop.Cart", secured.Addr().String(), false, "Post"}, // closed or reset
		{"shop.Cart", up, true, "tls"},
		{"/", bare.Addr().String(), false, `grpc-status "12"`},
		{"/", web.Listener.Addr().String(), false, "Post"}, // malformed, or closed: it speaks HTTP/1.1
		{"/", silent.Addr().String(), false, "deadline"},
		{"/", closedPort(t), false, "refused"},
	} {
		check := Check{GRPC: c.service, Timeout: timeout}
		if c.want == "deadline" {
			check.Timeout = 200 * time.Millisecond
		}
		if c.secure {
			check.TLS = func(string, string) *tls.Config {
				return &tls.Config{RootCAs: front.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"}
			}
		}
		err := newAsker(&check, nil).askAny(context.Background(), []string{c.addr})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s at %s, TLS %v: %v, want %q", c.service, c.addr, c.secure, err, c.want)
		}
	}
}

// TestGRPCRequest: a server gets what gRPC over HTTP/2 demands of a call.
func TestGRPCRequest(t *testing.T) {
	got := make(chan *http.Request, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r
		w.Header().Set("Grpc-Status", "12")
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	check := Check{GRPC: "s", Timeout: timeout}
	if err := newAsker(&check, nil).ask(t.Context(), srv.Listener.Addr().String(), ""); err == nil || !strings.Contains(err.Error(), `grpc-status "12"`) {
		t.Error(err)
	}
	r := receive(t, "the call", got)
	if r.Method != http.MethodPost || r.Header.Get("Te") != "trailers" || r.Header.Get("Content-Type") != "application/grpc" || r.ContentLength != 5+3 {
		t.Errorf("%s of %d bytes, %v", r.Method, r.ContentLength, r.Header)
	}
}

// TestGRPCVerdict: an application is healthy while its server says so.
func TestGRPCVerdict(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	state := serveHealth(t, l)
	ctx, cancel := context.WithCancel(context.Background())
	verdicts, done := make(chan Verdict), make(chan struct{})
	check := Check{GRPC: "shop.Cart", Interval: time.Millisecond, Timeout: timeout, Healthy: 2, Unhealthy: 3}
	go func() {
		defer close(done)
		Application(ctx, check, []string{l.Addr().String()}, Unchanged, func(_ error, v Verdict) {
			if v != Unchanged {
				verdicts <- v
			}
		})
	}()
	for i, want := range []Verdict{Healthy, Unhealthy, Healthy} {
		if got := receive(t, "a verdict", verdicts); got != want {
			t.Errorf("verdict %d is %d, want %d", i, got, want)
		}
		state.SetServingStatus("shop.Cart", []healthpb.HealthCheckResponse_ServingStatus{2, 1, 1}[i])
	}
	cancel()
	<-done
}

// TestJudgeGRPC: what a response must have, beside its message.
func TestJudgeGRPC(t *testing.T) {
	serving := "\x00\x00\x00\x00\x02\x08\x01"
	for name, c := range map[string]struct {
		status          int
		body            string
		header, trailer string // grpc-status
		want            string
	}{
		"serving":             {200, serving, "", "0", ""},
		"without trailers":    {200, serving, "0", "", ""},
		"trailers count":      {200, serving, "5", "0", ""},
		"another status":      {503, serving, "", "0", "status 503"},
		"no grpc-status":      {200, serving, "", "", "no grpc-status"},
		"a failure":           {200, "", "", "5", `grpc-status "5": "text"`},
		"a failure at once":   {200, "", "12", "", `grpc-status "12": "text"`},
		"as long as it may":   {200, strings.Repeat("x", maxMessage), "", "0", "malformed"},
		"longer":              {200, strings.Repeat("x", maxMessage+1), "", "0", "more than"},
		"not serving":         {200, "\x00\x00\x00\x00\x02\x08\x02", "", "0", "NOT_SERVING"},
		"a connection is cut": {200, "", "", "", io.ErrUnexpectedEOF.Error()},
	} {
		resp := &http.Response{
			StatusCode: c.status, Status: fmt.Sprint(c.status), Body: io.NopCloser(strings.NewReader(c.body)),
			Header: http.Header{"Grpc-Message": {"text"}}, Trailer: http.Header{"Grpc-Message": {"text"}},
		}
		if c.header != "" {
			resp.Header.Set("Grpc-Status", c.header)
		}
		if c.trailer != "" {
			resp.Trailer.Set("Grpc-Status", c.trailer)
		}
		if name == "a connection is cut" {
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(c.body), iotest.ErrReader(io.ErrUnexpectedEOF)))
		}
		if err := judgeGRPC(resp); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestJudgeEndlessGRPC: a response that is too long is refused at once, whether its end comes or not.
func TestJudgeEndlessGRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, out := io.Pipe()
		go func() { _, _ = out.Write(make([]byte, maxMessage+1)) }()
		end := time.AfterFunc(time.Hour, func() { _ = out.CloseWithError(context.DeadlineExceeded) })
		defer end.Stop()
		if err := judgeGRPC(&http.Response{StatusCode: http.StatusOK, Body: body}); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Error(err)
		}
	})
}

// TestServing: messages that a server may send.
func TestServing(t *testing.T) {
	for message, want := range map[string]string{
		"00000000020801":   "",
		"0000000003088100": "", // longer than needed
		"00000000020802":   "NOT_SERVING",
		"00000000020803":   "SERVICE_UNKNOWN",
		"0000000000":       "UNKNOWN", // the default is not sent
		"00000000020804":   "unknown status 4",
		"0000000002087f":   "unknown status 127",
		"":                 "malformed",
		"00000000":         "malformed",
		"01000000020801":   "malformed", // compressed, which was not asked for
		"00000000010801":   "malformed",
		"000000000108":     "malformed",
		"00000000021001":   "malformed",
		"000000000308ffff": "malformed",
	} {
		body, err := hex.DecodeString(message)
		if err != nil {
			t.Fatal(err)
		}
		if err := serving(body); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", message, err, want)
		}
	}
}

// TestSuits: which endpoints are asked for what. What is asked elsewhere may speak anything.
func TestSuits(t *testing.T) {
	for protocol, want := range map[string][3]bool{
		"http": {true, true, true}, "http2": {true, false, true}, "grpc": {true, false, true},
		"link": {true, false, false}, "tcp": {true, false, false}, "": {true, false, false},
	} {
		for i, c := range []Check{{}, {Path: "/"}, {GRPC: "/"}} {
			if got := c.suits(protocol); got != want[i] {
				t.Errorf("%q: %v for %+v", protocol, got, c)
			}
			byHost, byPort := c, c
			byHost.Host, byPort.Port = "a", 1
			if !byHost.suits(protocol) || !byPort.suits(protocol) {
				t.Errorf("%q: %+v can't be asked elsewhere", protocol, c)
			}
		}
	}
}
