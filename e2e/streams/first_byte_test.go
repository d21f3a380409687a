package streams

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/remora-proxy/remora/e2e/harness"
)

// lazyApp is an application whose streams begin with a head, and last until their client leaves. The first byte of the
// body follows at once but, if x-freeze asks for that, only in attempts after the first.
type lazyApp struct {
	pb.UnimplementedTestServiceServer
	ended chan struct{} // receives for each attempt without a first byte that was ended
}

// frozen is an attempt that gets no byte.
func (a *lazyApp) frozen(ctx context.Context) {
	<-ctx.Done()
	a.ended <- struct{}{}
}

func (a *lazyApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	size := 5
	if strings.HasPrefix(r.URL.Path, "/events") {
		w.Header().Set("Content-Type", "text/event-stream")
	} else {
		size = 1 << 20
		w.Header().Set("Content-Length", strconv.Itoa(size))
	}
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	if r.Header.Get("x-freeze") != "" && r.Header.Get("x-remora-attempt") == "" {
		a.frozen(r.Context())
		return
	}
	_, _ = w.Write(make([]byte, size))
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// StreamingOutputCall implements pb.TestServiceServer.
func (a *lazyApp) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	if err := s.SendHeader(nil); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(s.Context())
	if md.Get("x-freeze") != nil && md.Get("x-remora-attempt") == nil {
		a.frozen(s.Context())
		return s.Context().Err()
	}
	err := s.Send(&pb.StreamingOutputCallResponse{})
	<-s.Context().Done()
	return err
}

// TestHedgeUntilFirstByte: a stream of a replica that has sent a head, and then freezes, comes from another replica.
// The frozen one learns that its attempt is over.
func TestHedgeUntilFirstByte(t *testing.T) {
	for _, c := range []struct{ name, speaks, path string }{
		{"events", "http", "/events"},
		{"download", "http", "/download"},
		{"events over HTTP2", "http2", "/events"},
		{"download over HTTP2", "http2", "/download"},
		{"gRPC", "grpc", ""},
	} {
		for hops := 1; hops <= 2; hops++ {
			t.Run(fmt.Sprintf("%s, hops %d", c.name, hops), func(t *testing.T) {
				app := &lazyApp{ended: make(chan struct{}, 1000)}
				var endpoints []string
				for range 3 {
					endpoints = append(endpoints, app.start(t, c.speaks))
				}
				speaks := c.speaks
				if hops == 2 {
					speaks, endpoints = "link", providers(t, c.speaks, endpoints)
				}
				egress := harness.FreeAddrs(t, 1)[0]
				// The delay is long, so that a hedge on a busy machine has its first byte within another one.
				p := harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services:
  app: {discover: static, endpoints: ["%s"], protocol: %s, connect_timeout: 15s, timeout: 2m,
    idempotent: true, hedge: {mode: on, delay: 500ms, budget: 1}}`, egress, strings.Join(endpoints, `", "`), speaks))
				p.Ready()
				begin := beginHTTP("http://" + egress + c.path)
				if c.speaks == "grpc" {
					begin = beginGRPC(t, egress)
				}
				awaitRescue(t, begin)
				harness.Receive(t, "the end of the frozen attempt", app.ended)
				p.AwaitMetric(`remora_hedges_total{result="won",service="app"}`, 1)
			})
		}
	}
}

func (a *lazyApp) start(t *testing.T, speaks string) (addr string) {
	switch speaks {
	case "grpc":
		return harness.ServeGRPC(t, a)
	case "http2":
		return harness.StartHTTP2Endpoint(t, "127.0.0.1:0", a.ServeHTTP, nil).Addr
	}
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return srv.Listener.Addr().String()
}

// providers starts a sidecar with a link listener for each of the endpoints, and returns the listeners' addresses.
func providers(t *testing.T, speaks string, endpoints []string) []string {
	addrs := harness.FreeAddrs(t, len(endpoints))
	var listeners, services strings.Builder
	for i, at := range endpoints {
		fmt.Fprintf(&listeners, "- {name: in%d, address: %q, protocol: link, service: local%d}\n", i, addrs[i], i)
		fmt.Fprintf(&services, "  local%d: {discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, timeout: 2m}\n", i, at, speaks)
	}
	harness.Start(t, "loops: 1\nlimits: {message: 64KiB}\nlisteners:\n"+listeners.String()+"services:\n"+services.String()).Ready()
	return addrs
}

// awaitRescue begins streams until one whose replica freezes has its first byte. Between them it begins others, from
// which the sidecar learns that the first byte soon follows the head.
func awaitRescue(t *testing.T, begin func(ctx context.Context, freeze bool) error) {
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for {
		if err := begin(ctx, false); err != nil {
			t.Fatalf("a stream that does not freeze: %v", err)
		}
		once, stop := context.WithTimeout(ctx, 5*time.Second)
		err := begin(once, true)
		stop()
		switch {
		case err == nil:
			return
		case ctx.Err() != nil || !errors.Is(once.Err(), context.DeadlineExceeded):
			t.Fatalf("no stream of a frozen replica was rescued: %v", err)
		}
	}
}

// beginHTTP returns a function that begins a stream, and ends it after its first byte.
func beginHTTP(url string) func(ctx context.Context, freeze bool) error {
	return func(ctx context.Context, freeze bool) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if freeze {
			req.Header.Set("x-freeze", "1")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = resp.Body.Read(make([]byte, 1))
		return err
	}
}

// beginGRPC is beginHTTP for calls of gRPC.
func beginGRPC(t *testing.T, addr string) func(ctx context.Context, freeze bool) error {
	client := pb.NewTestServiceClient(harness.DialGRPC(t, addr))
	return func(ctx context.Context, freeze bool) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if freeze {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-freeze", "1")
		}
		s, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
		if err != nil {
			return err
		}
		_, err = s.Recv()
		return err
	}
}
