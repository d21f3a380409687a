package harness

import (
	"context"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/remora-proxy/remora/internal/must"
)

// GRPCApp is a grpc-go server with the calls of its interoperability tests.
type GRPCApp struct {
	pb.UnimplementedTestServiceServer
	Cancelled chan error // of streams
}

// StartGRPCApp starts a GRPCApp, and returns its address.
func StartGRPCApp(t *testing.T) (*GRPCApp, string) {
	t.Helper()
	a := &GRPCApp{Cancelled: make(chan error, 10)}
	return a, ServeGRPC(t, a)
}

// ServeGRPC serves app and tells of it by reflection. It returns the address.
func ServeGRPC(t *testing.T, app pb.TestServiceServer, more ...grpc.ServerOption) string {
	t.Helper()
	l := must.Listen(t)
	s := grpc.NewServer(append(more, grpc.MaxRecvMsgSize(64<<20))...)
	pb.RegisterTestServiceServer(s, app)
	reflection.Register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// DialGRPC returns a connection without TLS, unless options say otherwise, that is closed at the end of the test.
func DialGRPC(t *testing.T, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient("passthrough:///"+addr, append([]grpc.DialOption{plain}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// UnaryCall ends with the status of the request, or else responds with so many bytes. With a negative number it
// waits until the call is cancelled.
func (a *GRPCApp) UnaryCall(ctx context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if in.ResponseStatus.GetCode() != 0 {
		return nil, status.Error(codes.Code(in.ResponseStatus.Code), in.ResponseStatus.Message)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-head", strings.Join(md.Get("x-head"), ",")))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-end-bin", "\x00\xff"))
	if in.ResponseSize < 0 {
		<-ctx.Done()
		a.Cancelled <- ctx.Err()
		return nil, ctx.Err()
	}
	return &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, in.ResponseSize)}}, nil
}

// StreamingOutputCall responds with messages of the sizes in the request.
func (a *GRPCApp) StreamingOutputCall(in *pb.StreamingOutputCallRequest, out grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	for _, p := range in.ResponseParameters {
		if err := out.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, p.Size)}}); err != nil {
			a.Cancelled <- err
			return err
		}
	}
	return nil
}

// StreamingInputCall responds with the size of all messages.
func (a *GRPCApp) StreamingInputCall(in grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]) error {
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

// FullDuplexCall returns each message, and ends with the status DataLoss.
func (a *GRPCApp) FullDuplexCall(s grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	for {
		m, err := s.Recv()
		if err == io.EOF {
			return status.Error(codes.DataLoss, "the end")
		}
		if err != nil {
			a.Cancelled <- err
			return err
		}
		if err := s.Send(&pb.StreamingOutputCallResponse{Payload: m.Payload}); err != nil {
			return err
		}
	}
}

// CallsAndStreams makes one unary call, and one that is a stream both ways.
func CallsAndStreams(t *testing.T, client pb.TestServiceClient) {
	r, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: 1000})
	if err != nil || len(r.Payload.GetBody()) != 1000 {
		t.Errorf("unary call: %v", err)
	}
	both, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if err := both.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, i*10_000)}}); err != nil {
			t.Fatal(err)
		}
		if m, err := both.Recv(); err != nil || len(m.Payload.GetBody()) != i*10_000 {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	_ = both.CloseSend()
	if _, err := both.Recv(); status.Code(err) != codes.DataLoss {
		t.Errorf("the end: %v", err)
	}
}
