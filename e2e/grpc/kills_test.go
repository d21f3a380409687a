package grpc

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// scripts/grpc.sh --kill sets it.
var grpcCalls = flag.Int64("grpc-calls", 0, "calls by gRPC under kills, drains and hot restarts, at least; 0 skips the test")

// countingApp sends back what it gets, and counts each call by its text.
type countingApp struct {
	pb.UnimplementedTestServiceServer
	mu   sync.Mutex
	seen map[string]int
}

func (a *countingApp) UnaryCall(_ context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen[string(in.Payload.GetBody())]++
	return &pb.SimpleResponse{Payload: in.Payload}, nil
}

func (a *countingApp) FullDuplexCall(s grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return nil // the end, or a caller that has left
		}
		if err := s.Send(&pb.StreamingOutputCallResponse{Payload: m.Payload}); err != nil {
			return err
		}
	}
}

// grpcMesh is a consumer's sidecar and three providers' in front of three grpc-go servers.
type grpcMesh struct {
	t         *testing.T
	app       *countingApp // all three
	providers [3]*harness.Process
	consumer  *harness.Process

	idempotent, once string // listeners: calls that may be sent twice, and those that may not

	done  atomic.Int64 // calls
	kills atomic.Int64 // odd while a provider is killed and is not back

	failedOnce, cut atomic.Int64 // by kills
}

func newGRPCMesh(t *testing.T) *grpcMesh {
	m := &grpcMesh{t: t, app: &countingApp{seen: map[string]int{}}}
	addrs := harness.FreeAddrs(t, 5)
	for i := range m.providers {
		addr := harness.ServeGRPC(t, m.app)
		m.providers[i] = harness.Start(t, fmt.Sprintf(`
loops: 2
node: {id: p%d}
timeouts: {drain: 30s}
listeners: [{name: link, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: grpc, connect_timeout: 15s, timeout: 1m}}`, i, addrs[i], addr))
		m.providers[i].Ready()
	}
	m.idempotent, m.once = addrs[3], addrs[4]
	service := fmt.Sprintf(`{discover: static, endpoints: [%q, %q, %q], protocol: link, connect_timeout: 15s, timeout: 1m`, addrs[0], addrs[1], addrs[2])
	m.consumer = harness.Start(t, fmt.Sprintf(`
loops: 2
node: {id: c}
timeouts: {drain: 30s}
listeners:
  - {name: idempotent, address: %q, protocol: http, service: idempotent}
  - {name: once, address: %q, protocol: http, service: once}
services:
  idempotent: %s, idempotent: true, retry: {attempts: 2, on: [connect, refused, reset]}, hedge: {mode: off, budget: 1}}
  once: %s}`, m.idempotent, m.once, service, service))
	m.consumer.Ready()
	return m
}

// call makes one call, whose text is its own.
func (m *grpcMesh) call(c pb.TestServiceClient, text string) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), harness.Patience)
	defer cancel()
	r, err := c.UnaryCall(ctx, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte(text)}})
	if err == nil && string(r.Payload.GetBody()) != text {
		err = fmt.Errorf("the response to %q is %q", text, r.Payload.GetBody())
	}
	return err
}

// talk sends messages on a stream one by one, each once the one before has come back.
func (m *grpcMesh) talk(c pb.TestServiceClient, text string) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), harness.Patience)
	defer cancel()
	stream, err := c.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	for i := range 20 {
		message := fmt.Sprintf("%s %d", text, i)
		_ = stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte(message)}}) // Recv says why it failed
		back, err := stream.Recv()
		if err != nil {
			return err
		}
		if string(back.Payload.GetBody()) != message {
			return fmt.Errorf("%q came back as %q", message, back.Payload.GetBody())
		}
	}
	return stream.CloseSend()
}

// worker repeats one kind of call until ctx ends. A failure counts in lost if a kill explains it.
func (m *grpcMesh) worker(ctx context.Context, addr, name string, call func(pb.TestServiceClient, string) error, lost *atomic.Int64) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig())
	if err != nil {
		m.t.Error(err)
		return
	}
	defer conn.Close()
	c := pb.NewTestServiceClient(conn)
	for n := 0; ctx.Err() == nil; n++ {
		before := m.kills.Load()
		err := call(c, fmt.Sprintf("%s %d", name, n))
		killed := before%2 == 1 || m.kills.Load() != before
		switch code := status.Code(err); {
		case err == nil:
		case lost != nil && killed && (code == codes.Unavailable || code == codes.Internal):
			lost.Add(1)
		default:
			m.t.Errorf("%s %d: %v", name, n, err)
		}
		m.done.Add(1)
	}
}

// TestGRPCUnderKills mixes unary calls and streams while providers are killed, drained and hot
// restarted, and the consumer is hot restarted. No call that may be sent twice is lost, no other
// is carried out twice, and only a kill cuts a stream.
func TestGRPCUnderKills(t *testing.T) {
	if *grpcCalls == 0 {
		t.Skip("only on demand: scripts/grpc.sh --kill")
	}
	m := newGRPCMesh(t)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for i := range 12 {
		all.Go(func() { m.worker(ctx, m.idempotent, fmt.Sprintf("idempotent %d", i), m.call, nil) })
		if i%3 == 0 {
			all.Go(func() { m.worker(ctx, m.once, fmt.Sprintf("once %d", i), m.call, &m.failedOnce) })
			all.Go(func() { m.worker(ctx, m.idempotent, fmt.Sprintf("stream %d", i), m.talk, &m.cut) })
		}
	}
	const rounds = 3
	more := func() {
		t.Helper()
		goal := m.done.Load() + *grpcCalls/(5*rounds)
		eventually.Nil(t, "calls", func() error {
			if n := m.done.Load(); n < goal {
				return fmt.Errorf("%d of %d", n, goal)
			}
			return nil
		})
	}
	var draining []*harness.Process
	for i := range rounds {
		more()
		p := &m.providers[i]
		m.kills.Add(1)
		(*p).Signal(syscall.SIGKILL)
		<-(*p).Exited
		*p = (*p).Again()
		(*p).Ready()
		m.kills.Add(1)
		more()

		p = &m.providers[(i+1)%3]
		(*p).Signal(syscall.SIGTERM)
		if code := (*p).ExitCode(); code != 0 {
			t.Errorf("drained: exit code %d", code)
		}
		*p = (*p).Again()
		(*p).Ready()
		more()

		for _, p := range []**harness.Process{&m.providers[(i+2)%3], &m.consumer} {
			draining = append(draining, *p)
			*p = (*p).Replace()
			more()
		}
	}
	stop()
	all.Wait()
	for _, p := range draining {
		p.Ends()
	}
	t.Logf("%d calls; by kills %d of those that may not be repeated failed, and %d streams were cut", m.done.Load(), m.failedOnce.Load(), m.cut.Load())
	for text, n := range m.app.seen {
		if n > 1 && text[:4] == "once" {
			t.Errorf("%s was carried out %d times", text, n)
		}
	}
}
