package grpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// endingApp sends one message and, when the client has got it, ends the call with a code. A call
// that the client cancels ends before.
type endingApp struct {
	pb.UnimplementedTestServiceServer
	ends  chan codes.Code
	fails bool // whatever the code
}

func (a *endingApp) end(ctx context.Context, send func(*pb.StreamingOutputCallResponse) error) error {
	if err := send(&pb.StreamingOutputCallResponse{}); err != nil {
		return err
	}
	select {
	case code := <-a.ends:
		if a.fails {
			code = codes.Unavailable
		}
		return status.Error(code, "the end")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *endingApp) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	return a.end(s.Context(), s.Send)
}

func (a *endingApp) FullDuplexCall(s grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	return a.end(s.Context(), s.Send)
}

// streamKinds begin a call, and return how the client receives from it.
var streamKinds = map[string]func(ctx context.Context, c pb.TestServiceClient) (receiver, error){
	"server": func(ctx context.Context, c pb.TestServiceClient) (receiver, error) {
		return c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	},
	"both": func(ctx context.Context, c pb.TestServiceClient) (receiver, error) {
		s, err := c.FullDuplexCall(ctx)
		if err != nil {
			return nil, err
		}
		return s, s.Send(&pb.StreamingOutputCallRequest{})
	},
}

type receiver interface {
	Recv() (*pb.StreamingOutputCallResponse, error)
}

// endingMesh are sidecars in front of applications.
type endingMesh struct {
	sidecars []*harness.Process // the caller's first
	logs     []string           // their access logs
	client   pb.TestServiceClient
}

// startEndingMesh starts one sidecar or, with hops, also one beside each application. more are
// settings of the caller's service.
func startEndingMesh(t *testing.T, hops int, apps []string, more string) *endingMesh {
	t.Helper()
	m := &endingMesh{}
	run := func(yaml string) {
		log := filepath.Join(t.TempDir(), "access")
		m.sidecars = append(m.sidecars, harness.Start(t, fmt.Sprintf("loops: 1\naccess_log: {path: %q}\n%s", log, yaml)))
		m.logs = append(m.logs, log)
	}
	addrs := harness.FreeAddrs(t, 1+len(apps))
	protocol, endpoints := "grpc", apps
	if hops == 2 {
		protocol, endpoints = "link", addrs[1:]
	}
	run(fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, endpoints: [%s], protocol: %s, connect_timeout: 15s, timeout: 50s%s}}`,
		addrs[0], `"`+strings.Join(endpoints, `", "`)+`"`, protocol, more))
	for i := 0; hops == 2 && i < len(apps); i++ {
		run(fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: grpc, connect_timeout: 15s}}`, addrs[1+i], apps[i]))
	}
	for _, p := range m.sidecars {
		p.Ready()
	}
	m.client = pb.NewTestServiceClient(harness.DialGRPC(t, addrs[0]))
	return m
}

// call makes a call that its application ends with code, or, if ends is nil, the client.
func (m *endingMesh) call(t *testing.T, kind string, ends chan<- codes.Code, code codes.Code) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := streamKinds[kind](ctx, m.client)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Recv(); err != nil {
		t.Fatal(err)
	}
	if ends != nil {
		ends <- code
	} else {
		cancel()
	}
	if _, err = s.Recv(); err == nil {
		t.Fatal("a second message")
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// TestGRPCStreamOutcome: the code that a stream ends with is counted and logged at every hop.
func TestGRPCStreamOutcome(t *testing.T) {
	for _, hops := range []int{1, 2} {
		t.Run(fmt.Sprintf("hops %d", hops), func(t *testing.T) {
			app := &endingApp{ends: make(chan codes.Code, 1)}
			m := startEndingMesh(t, hops, []string{harness.ServeGRPC(t, app)}, "")
			want := map[string]int{"unavailable": 4, "ok": 2, "cancelled": 2, "not-found": 2}
			for kind := range streamKinds {
				for _, code := range []codes.Code{codes.Unavailable, codes.OK, codes.NotFound, codes.Unavailable} {
					if err := m.call(t, kind, app.ends, code); status.Code(err) != code {
						t.Errorf("%s: got %v, want %v", kind, err, code)
					}
				}
				if err := m.call(t, kind, nil, 0); status.Code(err) != codes.Canceled {
					t.Errorf("%s: got %v", kind, err)
				}
			}
			for i, p := range m.sidecars {
				for code, n := range want {
					eventually.Nil(t, fmt.Sprintf("sidecar %d to count %s", i, code), func() error {
						if got := p.Metric(`remora_grpc_requests_total{code="` + code + `",service="app"}`); got != n {
							return fmt.Errorf("%d, want %d", got, n)
						}
						return nil
					})
				}
				harness.AwaitLines(t, m.logs[i], 10)
				text := must.ReadFile(t, m.logs[i])
				got := map[string]int{}
				for line := range strings.Lines(string(text)) {
					var l struct {
						GRPC    string `json:"grpc_status"`
						Outcome string
					}
					if err := json.Unmarshal([]byte(line), &l); err != nil {
						t.Fatal(err)
					}
					got[l.GRPC]++
					if outcome := map[string]string{"unavailable": "5xx", "ok": "2xx", "cancelled": "cut", "not-found": "4xx"}[l.GRPC]; l.Outcome != outcome {
						t.Errorf("sidecar %d: the outcome of %s is %s, want %s", i, l.GRPC, l.Outcome, outcome)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("sidecar %d has logged %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestGRPCStreamsEject: an endpoint whose streams begin well and end badly is ejected.
func TestGRPCStreamsEject(t *testing.T) {
	for _, hops := range []int{1, 2} {
		for kind := range streamKinds {
			t.Run(fmt.Sprintf("%s, hops %d", kind, hops), func(t *testing.T) {
				ends := make(chan codes.Code, 1)
				bad, good := &endingApp{ends: ends, fails: true}, &endingApp{ends: ends}
				m := startEndingMesh(t, hops, []string{harness.ServeGRPC(t, bad), harness.ServeGRPC(t, good)},
					", lb: {policy: weighted_round_robin}, outlier: {consecutive: 3, success_rate: 0, base: 60s, max_ejected: 0.5}")
				failed := 0
				eventually.Nil(t, "the endpoint to be ejected", func() error {
					if m.sidecars[0].Metric(`remora_ejections_total{reason="consecutive",service="app"}`) == 1 {
						return nil
					}
					if failed > 20 {
						t.Fatal("20 failed streams have ejected nothing")
					}
					if err := m.call(t, kind, ends, codes.OK); err != nil {
						failed++
					}
					return fmt.Errorf("%d streams have failed", failed)
				})
				for range 10 {
					if err := m.call(t, kind, ends, codes.OK); err != nil {
						t.Errorf("after the ejection: %v", err)
					}
				}
			})
		}
	}
}

// TestGRPCStreamsBreak: the breaker of a service opens when its streams begin well and end badly.
func TestGRPCStreamsBreak(t *testing.T) {
	for kind := range streamKinds {
		t.Run(kind, func(t *testing.T) {
			app := &endingApp{ends: make(chan codes.Code, 1), fails: true}
			m := startEndingMesh(t, 1, []string{harness.ServeGRPC(t, app)}, ", breaker: {consecutive: 3, open: 60s}")
			for i := range 3 {
				if err := m.call(t, kind, app.ends, codes.OK); status.Code(err) != codes.Unavailable {
					t.Fatalf("call %d: %v", i, err)
				}
				harness.AwaitLines(t, m.logs[0], i+1)
			}
			eventually.Nil(t, "the breaker to open", func() error {
				if got := m.sidecars[0].Metric(`remora_breaker_state{service="app"}`); got != 2 {
					return fmt.Errorf("state %d", got)
				}
				return nil
			})
		})
	}
}
