package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

// grpcApp is a server of grpc-go.
type grpcApp struct {
	pb.UnimplementedTestServiceServer
	cancelled chan error // of streams
}

func startGRPCApp(t *testing.T) (*grpcApp, string) {
	t.Helper()
	a := &grpcApp{cancelled: make(chan error, 10)}
	return a, serveGRPC(t, a)
}

// serveGRPC serves app and tells of it by reflection. It returns the address.
func serveGRPC(t *testing.T, app pb.TestServiceServer, more ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(append(more, grpc.MaxRecvMsgSize(64<<20))...)
	pb.RegisterTestServiceServer(s, app)
	reflection.Register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func (a *grpcApp) UnaryCall(ctx context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if in.ResponseStatus.GetCode() != 0 {
		return nil, status.Error(codes.Code(in.ResponseStatus.Code), in.ResponseStatus.Message)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-head", strings.Join(md.Get("x-head"), ",")))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-end-bin", "\x00\xff"))
	if in.ResponseSize < 0 {
		<-ctx.Done()
		a.cancelled <- ctx.Err()
		return nil, ctx.Err()
	}
	return &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, in.ResponseSize)}}, nil
}

func (a *grpcApp) StreamingOutputCall(in *pb.StreamingOutputCallRequest, out grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	for _, p := range in.ResponseParameters {
		if err := out.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, p.Size)}}); err != nil {
			a.cancelled <- err
			return err
		}
	}
	return nil
}

func (a *grpcApp) StreamingInputCall(in grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]) error {
	size := 0
	for {
		m, err := in.Recv()
		if err == io.EOF {
			return in.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)})
		}
		if err != nil {
			return err
		}
		size += len(m.Payload.Body)
	}
}

func (a *grpcApp) FullDuplexCall(s grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	for {
		m, err := s.Recv()
		if err == io.EOF {
			return status.Error(codes.DataLoss, "the end")
		}
		if err != nil {
			a.cancelled <- err
			return err
		}
		if err := s.Send(&pb.StreamingOutputCallResponse{Payload: m.Payload}); err != nil {
			return err
		}
	}
}

// grpcThrough calls f with clients that reach a server through one sidecar, and through two.
func grpcThrough(t *testing.T, f func(t *testing.T, app *grpcApp, client pb.TestServiceClient)) {
	for _, hops := range []int{1, 2} {
		t.Run(fmt.Sprintf("hops %d", hops), func(t *testing.T) {
			app, addr := startGRPCApp(t)
			addrs := freeAddrs(t, 2)
			service := fmt.Sprintf("endpoints: [%q], protocol: grpc", addr)
			if hops == 2 {
				startRemora(t, fmt.Sprintf(`
loops: 1
limits: {message: 1MiB}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, %s, connect_timeout: 15s}}`, addrs[1], service)).ready()
				service = fmt.Sprintf("endpoints: [%q], protocol: link", addrs[1])
			}
			startRemora(t, fmt.Sprintf(`
loops: 1
limits: {message: 1MiB}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, %s, connect_timeout: 15s, timeout: 50s}}`, addrs[0], service)).ready()
			conn, err := grpc.NewClient("passthrough:///"+addrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			f(t, app, pb.NewTestServiceClient(conn))
		})
	}
}

// TestGRPCUnary checks calls that are a message each, and those with long messages.
func TestGRPCUnary(t *testing.T) {
	grpcThrough(t, func(t *testing.T, app *grpcApp, client pb.TestServiceClient) {
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
		if err := receive(t, "the end of a cancelled call", done); status.Code(err) != codes.Canceled {
			t.Errorf("a cancelled call: %v", err)
		}
	})
}

// TestGRPCCancelReachesServer checks that the server learns of a call that its client has cancelled.
func TestGRPCCancelReachesServer(t *testing.T) {
	grpcThrough(t, func(t *testing.T, app *grpcApp, client pb.TestServiceClient) {
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
		if err := receive(t, "the server to see the end", app.cancelled); status.Code(err) != codes.Canceled {
			t.Errorf("the server sees %v", err)
		}
	})
}

// TestGRPCStreams checks streams of each kind.
func TestGRPCStreams(t *testing.T) {
	grpcThrough(t, func(t *testing.T, app *grpcApp, client pb.TestServiceClient) {
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
