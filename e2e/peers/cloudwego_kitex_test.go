package peers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// runKitex runs cases of Kitex's client.
func runKitex(t *testing.T, what string, flags []string, cases ...string) {
	t.Helper()
	runCases(t, cases, append(append([]string{*cloudwegoProgram, what}, flags...), cases...)...)
}

// checkDid waits until each of n calls was carried out, and fails if one was twice.
func checkDid(t *testing.T, servers []*cloudwegoServer, prefix string, n int) {
	t.Helper()
	eventually.Nil(t, "all calls to be carried out", func() error {
		times, found := did(t, servers), 0
		for id, n := range times {
			if strings.HasPrefix(id, prefix) {
				found++
			}
			if n > 1 {
				t.Fatalf("call %s was carried out %d times", id, n)
			}
		}
		if found != n {
			return fmt.Errorf("%d calls of %d", found, n)
		}
		return nil
	})
}

// TestKitexThrift: Kitex's client calls its server by Thrift over TCP, in each framing.
func TestKitexThrift(t *testing.T) {
	needCloudwego(t)
	for way, start := range cloudwegoWays {
		for framing, more := range map[string][]string{
			"": nil, "framed": {"stream"}, "ttheader": {"business_error", "stream"}, "ttheaderframed": {"business_error", "stream"},
			"mux": {"business_error"},
		} {
			t.Run(way+" "+framing, func(t *testing.T) {
				t.Parallel()
				app := startCloudwego(t, "kitex", "-transport", framing)
				_, addr := start(t, "tcp", "tcp", app.addr)
				runKitex(t, "thrift", []string{"-addr", addr, "-transport", framing}, append(more, "echo", "many", "oneway", "errors", "timeout")...)
				checkDid(t, []*cloudwegoServer{app}, "many-", 400)
				checkDid(t, []*cloudwegoServer{app}, "told-", 100)
			})
		}
	}
}

// kitexCalls are cases that servers of Kitex and of grpc-go pass.
var kitexCalls = []string{"unary", "metadata", "status", "deadline", "server_stream", "client_stream", "both_streams", "many"}

// TestKitexGRPC: Kitex's client and server, and each with grpc-go, by gRPC.
func TestKitexGRPC(t *testing.T) {
	needCloudwego(t)
	for way, start := range cloudwegoWays {
		t.Run(way, func(t *testing.T) {
			app := startCloudwego(t, "kitex")
			for _, speaks := range []string{"grpc", "http2"} {
				_, addr := start(t, "http", speaks, app.addr)
				t.Run("Kitex to Kitex, "+speaks, func(t *testing.T) { runKitex(t, "grpc", []string{"-addr", addr}, kitexCalls...) })
				t.Run("grpc-go to Kitex, "+speaks, func(t *testing.T) { harness.CallsAndStreams(t, dialTestService(t, addr)) })
			}
			_, other := harness.StartGRPCApp(t)
			_, addr := start(t, "http", "grpc", other)
			t.Run("Kitex to grpc-go", func(t *testing.T) { runKitex(t, "grpc", []string{"-addr", addr}, kitexCalls...) })
		})
	}
}

func dialTestService(t *testing.T, addr string) pb.TestServiceClient {
	t.Helper()
	return pb.NewTestServiceClient(harness.DialGRPC(t, addr, grpc.WithDisableRetry(), grpc.WithDisableServiceConfig()))
}

// loadKitex makes calls of which UnaryCall may be hedged, and EmptyCall may not.
func loadKitex(t *testing.T, addr string) *cloudwegoLoad {
	c := dialTestService(t, addr)
	within := func(call func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		return call(ctx)
	}
	return callAgain(t, func() error {
		return within(func(ctx context.Context) error {
			text := randomBody(50)
			r, err := c.UnaryCall(ctx, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte(text)}})
			if err == nil && string(r.Payload.GetBody()) != text {
				err = fmt.Errorf("the response to another call: %q", r.Payload.GetBody())
			}
			return err
		})
	}, func(id string) error {
		return within(func(ctx context.Context) error {
			_, err := c.EmptyCall(metadata.AppendToOutgoingContext(ctx, "x-once", id), &pb.Empty{})
			return err
		})
	})
}

// TestKitexEndsConnections: Kitex ends each gRPC connection after some time, with a GOAWAY. No call
// fails.
func TestKitexEndsConnections(t *testing.T) {
	needCloudwego(t)
	app := startCloudwego(t, "kitex", "-age", "100ms")
	p, addr := hedgingSidecar(t, "http", "grpc", app.addr)
	load := loadKitex(t, addr)
	p.AwaitMetric("remora_reactor_dialed_total", 20)
	load.check(t, []*cloudwegoServer{app}, 0)
}

// leaveKitex begins a stream, and cancels it.
func leaveKitex(t *testing.T, addr string) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := dialTestService(t, addr).FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := s.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("the client sees %v", err)
	}
}
