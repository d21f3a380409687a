package grpc

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// grpcThrough calls f with clients that reach a server through one sidecar, and through two.
func grpcThrough(t *testing.T, f func(t *testing.T, app *harness.GRPCApp, client pb.TestServiceClient)) {
	for _, hops := range []int{1, 2} {
		t.Run(fmt.Sprintf("hops %d", hops), func(t *testing.T) {
			app, addr := harness.StartGRPCApp(t)
			addrs := harness.FreeAddrs(t, 2)
			service := fmt.Sprintf("endpoints: [%q], protocol: grpc", addr)
			if hops == 2 {
				harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 1MiB}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, %s, connect_timeout: 15s}}`, addrs[1], service)).Ready()
				service = fmt.Sprintf("endpoints: [%q], protocol: link", addrs[1])
			}
			harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 1MiB}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, %s, connect_timeout: 15s, timeout: 50s}}`, addrs[0], service)).Ready()
			conn := harness.DialGRPC(t, addrs[0], grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
			f(t, app, pb.NewTestServiceClient(conn))
		})
	}
}

// TestGRPCUnary checks calls that are a message each, and those with long messages.
func TestGRPCUnary(t *testing.T) {
	grpcThrough(t, func(t *testing.T, app *harness.GRPCApp, client pb.TestServiceClient) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-head", "given")
		for _, size := range []int{0, 1, 100, 70_000, 1 << 20, 5 << 20} {
			var head, end metadata.MD
			r, err := client.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: int32(size), Payload: &pb.Payload{Body: make([]byte, size)}}, grpc.Header(&head), grpc.Trailer(&end))
			if err != nil || len(r.Payload.GetBody()) != size {
				t.Errorf("%d bytes: %v", size, err)
				continue
			}
			if got := head.Get("x-head"); len(got) != 1 || got[0] != "given" {
				t.Errorf("%d bytes: head %v", size, head)
			}
			if got := end.Get("x-end-bin"); len(got) != 1 || got[0] != "\x00\xff" {
				t.Errorf("%d bytes: trailers %v", size, end)
			}
		}
		_, err := client.UnaryCall(ctx, &pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Code: int32(codes.NotFound), Message: "näht\n"}})
		if s := status.Convert(err); s.Code() != codes.NotFound || s.Message() != "näht\n" {
			t.Errorf("status %v", s)
		}
		if _, err = client.EmptyCall(ctx, &pb.Empty{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("an unknown method: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := client.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: -1})
			done <- err
		}()
		cancel()
		if err := harness.Receive(t, "the end of a cancelled call", done); status.Code(err) != codes.Canceled {
			t.Errorf("a cancelled call: %v", err)
		}
	})
}

// TestGRPCCancelReachesServer checks that the server learns of a call that its client has cancelled.
func TestGRPCCancelReachesServer(t *testing.T) {
	grpcThrough(t, func(t *testing.T, app *harness.GRPCApp, client pb.TestServiceClient) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := client.FullDuplexCall(ctx)
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
		if err := harness.Receive(t, "the server to see the end", app.Cancelled); status.Code(err) != codes.Canceled {
			t.Errorf("the server sees %v", err)
		}
	})
}

// TestGRPCStreams checks streams of each kind.
func TestGRPCStreams(t *testing.T) {
	grpcThrough(t, func(t *testing.T, app *harness.GRPCApp, client pb.TestServiceClient) {
		const messages, size = 300, 100_000
		body := make([]byte, size)

		in := &pb.StreamingOutputCallRequest{}
		for range messages {
			in.ResponseParameters = append(in.ResponseParameters, &pb.ResponseParameters{Size: size})
		}
		down, err := client.StreamingOutputCall(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for {
			m, err := down.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got += len(m.Payload.Body)
		}
		if got != messages*size {
			t.Errorf("server stream: %d bytes", got)
		}

		up, err := client.StreamingInputCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range messages {
			if err := up.Send(&pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: body}}); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := up.CloseAndRecv(); err != nil || r.AggregatedPayloadSize != messages*size {
			t.Errorf("client stream: %v, %v", r, err)
		}

		both, err := client.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range messages {
			if err := both.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: body[:i]}}); err != nil {
				t.Fatal(err)
			}
			if m, err := both.Recv(); err != nil || len(m.Payload.GetBody()) != i {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		_ = both.CloseSend()
		if _, err := both.Recv(); status.Code(err) != codes.DataLoss || status.Convert(err).Message() != "the end" {
			t.Errorf("the end: %v", err)
		}
	})
}
