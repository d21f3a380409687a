package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cloudwego/kitex/client"
	_ "github.com/cloudwego/kitex/pkg/remote/codec/protobuf/encoding/gzip" // its server fails calls of clients that accept gzip without it
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/codes"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/metadata"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	kitex "github.com/cloudwego/kitex/transport"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// message makes a message of protobuf one that Kitex takes for the arguments or the result of a
// unary call.
type message struct{ proto.Message }

func (m *message) Marshal(out []byte) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(out, m.Message)
}
func (m *message) Unmarshal(in []byte) error { return proto.Unmarshal(in, m.Message) }

// grpcMethod is a method of grpc.testing.TestService. serve runs it at the server; a unary one
// receives one message and sends one, too.
func grpcMethod(mode serviceinfo.StreamingMode, in, out func() proto.Message, serve func(ctx context.Context, s streaming.ServerStream) error) serviceinfo.MethodInfo {
	handler := func(ctx context.Context, _, args, _ any) error {
		return serve(ctx, args.(*streaming.Args).ServerStream)
	}
	return serviceinfo.NewMethodInfo(handler, func() any { return &message{in()} }, func() any { return &message{out()} },
		false, serviceinfo.WithStreamingMode(mode))
}

// grpcServer is the type of the handler. The methods need no state.
type grpcServer struct{}

// grpcService is the service of gRPC's interop test, as far as the test needs it. Its messages are
// those that grpc-go has, so that each library can call the other's.
var grpcService = &serviceinfo.ServiceInfo{
	ServiceName:  "TestService",
	HandlerType:  (*any)(nil),
	PayloadCodec: serviceinfo.Protobuf,
	Extra:        map[string]any{serviceinfo.PackageName: "grpc.testing", "streaming": true},
	Methods: map[string]serviceinfo.MethodInfo{
		"EmptyCall": grpcMethod(serviceinfo.StreamingUnary, func() proto.Message { return &pb.Empty{} }, func() proto.Message { return &pb.Empty{} },
			func(ctx context.Context, s streaming.ServerStream) error {
				if err := s.RecvMsg(ctx, &pb.Empty{}); err != nil {
					return err
				}
				md, _ := metadata.FromIncomingContext(ctx)
				begin(strings.Join(md.Get("x-once"), ","))
				return s.SendMsg(ctx, &pb.Empty{})
			}),
		"UnaryCall": grpcMethod(serviceinfo.StreamingUnary, func() proto.Message { return &pb.SimpleRequest{} }, func() proto.Message { return &pb.SimpleResponse{} },
			serveUnary),
		"StreamingOutputCall": grpcMethod(serviceinfo.StreamingServer, func() proto.Message { return &pb.StreamingOutputCallRequest{} }, func() proto.Message { return &pb.StreamingOutputCallResponse{} },
			func(ctx context.Context, s streaming.ServerStream) error {
				in := &pb.StreamingOutputCallRequest{}
				if err := s.RecvMsg(ctx, in); err != nil {
					return err
				}
				for _, p := range in.ResponseParameters {
					if err := s.SendMsg(ctx, &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, p.Size)}}); err != nil {
						return err
					}
				}
				return nil
			}),
		"StreamingInputCall": grpcMethod(serviceinfo.StreamingClient, func() proto.Message { return &pb.StreamingInputCallRequest{} }, func() proto.Message { return &pb.StreamingInputCallResponse{} },
			func(ctx context.Context, s streaming.ServerStream) error {
				size := 0
				for {
					in := &pb.StreamingInputCallRequest{}
					err := s.RecvMsg(ctx, in)
					if err == io.EOF {
						return s.SendMsg(ctx, &pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)})
					}
					if err != nil {
						return err
					}
					size += len(in.Payload.GetBody())
				}
			}),
		"FullDuplexCall": grpcMethod(serviceinfo.StreamingBidirectional, func() proto.Message { return &pb.StreamingOutputCallRequest{} }, func() proto.Message { return &pb.StreamingOutputCallResponse{} },
			func(ctx context.Context, s streaming.ServerStream) error {
				for {
					in := &pb.StreamingOutputCallRequest{}
					err := s.RecvMsg(ctx, in)
					if err == io.EOF {
						return status.Err(codes.DataLoss, "the end")
					}
					if err != nil {
						fmt.Println("cancelled")
						return err
					}
					if err := s.SendMsg(ctx, &pb.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
						return err
					}
				}
			}),
	},
}

func serveUnary(ctx context.Context, s streaming.ServerStream) error {
	in := &pb.SimpleRequest{}
	if err := s.RecvMsg(ctx, in); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	begin("")
	if in.ResponseStatus.GetCode() != 0 {
		return status.Err(codes.Code(in.ResponseStatus.Code), in.ResponseStatus.Message)
	}
	if in.ResponseSize < 0 {
		<-ctx.Done()
		fmt.Println("cancelled")
		return ctx.Err()
	}
	_ = nphttp2.SetHeader(ctx, metadata.Pairs("x-head", strings.Join(md.Get("x-head"), ",")))
	_ = nphttp2.SetTrailer(ctx, metadata.Pairs("x-end-bin", "\x00\xff"))
	body := in.Payload.GetBody()
	if in.ResponseSize > 0 {
		body = make([]byte, in.ResponseSize)
	}
	return s.SendMsg(ctx, &pb.SimpleResponse{Payload: &pb.Payload{Body: body}})
}

// grpcClient calls grpc.testing.TestService.
type grpcClient struct{ client.Client }

// callGRPC runs cases of a gRPC client.
func callGRPC() error {
	options, err := clientOptions()
	if err != nil {
		return err
	}
	options = append(options, client.WithTransportProtocol(kitex.GRPC), client.WithDestService(serviceName))
	opened, err := client.NewClient(grpcService, options...)
	if err != nil {
		return err
	}
	c := grpcClient{opened}
	return runCases(map[string]func(ctx context.Context) error{
		"unary":         c.unary,
		"metadata":      c.metadata,
		"status":        c.status,
		"deadline":      c.deadline,
		"server_stream": c.serverStream,
		"client_stream": c.clientStream,
		"both_streams":  c.bothStreams,
		"many": func(ctx context.Context) error {
			return together(400, func(i int) error { return c.echo(ctx, 10+i) })
		},
		"once": func(ctx context.Context) error {
			return together(200, func(i int) error {
				ctx := metadata.AppendToOutgoingContext(ctx, "x-once", fmt.Sprintf("once-%d", i))
				return c.Call(ctx, "EmptyCall", &message{&pb.Empty{}}, &message{&pb.Empty{}})
			})
		},
	})
}

// unaryCall makes one call.
func (c grpcClient) unaryCall(ctx context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	out := &pb.SimpleResponse{}
	return out, c.Call(ctx, "UnaryCall", &message{in}, &message{out})
}

// echo asks for a response of the size.
func (c grpcClient) echo(ctx context.Context, size int) error {
	out, err := c.unaryCall(ctx, &pb.SimpleRequest{ResponseSize: int32(size), Payload: &pb.Payload{Body: randomBytes(size)}})
	if err == nil && len(out.Payload.GetBody()) != size {
		err = fmt.Errorf("%d bytes instead of %d", len(out.Payload.GetBody()), size)
	}
	return err
}

func (c grpcClient) unary(ctx context.Context) error {
	for _, size := range []int{1, 1000, 70_000, 3 << 20} {
		if err := c.echo(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

// metadata: headers and trailers arrive. Kitex looks for trailers right after the message, when they may still be on
// their way (the comment of its Stream.Trailer says so), so another call may be needed.
func (c grpcClient) metadata(ctx context.Context) error {
	var head, end metadata.MD
	ctx = nphttp2.GRPCTrailer(nphttp2.GRPCHeader(metadata.AppendToOutgoingContext(ctx, "x-head", "given"), &head), &end)
	const most = 50
	for range most {
		if err := c.echo(ctx, 10); err != nil {
			return err
		}
		if got := strings.Join(head.Get("x-head"), ","); got != "given" {
			return fmt.Errorf("head %v", head)
		}
		if len(end) > 0 {
			break
		}
	}
	if got := strings.Join(end.Get("x-end-bin"), ","); got != "\x00\xff" {
		return fmt.Errorf("trailers %v after %d calls at most", end, most)
	}
	return nil
}

func (c grpcClient) status(ctx context.Context) error {
	for _, code := range []codes.Code{codes.NotFound, codes.Internal, codes.ResourceExhausted} {
		_, err := c.unaryCall(ctx, &pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Code: int32(code), Message: "näht\n"}})
		if s, _ := status.FromError(errors.Unwrap(err)); err == nil || s.Code() != code || !strings.Contains(s.Message(), "näht\n") {
			return fmt.Errorf("code %d arrives as %v", code, err)
		}
	}
	return nil
}

// deadline: a call that the server never ends ends at the client's deadline.
func (c grpcClient) deadline(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := c.unaryCall(short, &pb.SimpleRequest{ResponseSize: -1}); err == nil {
		return errors.New("the call succeeds")
	}
	return c.echo(ctx, 10)
}

func (c grpcClient) stream(ctx context.Context, method string) (streaming.ClientStream, error) {
	return c.Client.(client.Streaming).StreamX(ctx, method)
}

// messages and size are of each stream.
const (
	messages = 200
	size     = 50_000
)

func (c grpcClient) serverStream(ctx context.Context) error {
	s, err := c.stream(ctx, "StreamingOutputCall")
	if err != nil {
		return err
	}
	in := &pb.StreamingOutputCallRequest{}
	for range messages {
		in.ResponseParameters = append(in.ResponseParameters, &pb.ResponseParameters{Size: size})
	}
	if err := s.SendMsg(ctx, in); err != nil {
		return err
	}
	if err := s.CloseSend(ctx); err != nil {
		return err
	}
	for i := 0; ; i++ {
		out := &pb.StreamingOutputCallResponse{}
		err := s.RecvMsg(ctx, out)
		if err == io.EOF && i == messages {
			return nil
		}
		if err != nil || len(out.Payload.GetBody()) != size {
			return fmt.Errorf("message %d: %d bytes, %v", i, len(out.Payload.GetBody()), err)
		}
	}
}

func (c grpcClient) clientStream(ctx context.Context) error {
	s, err := c.stream(ctx, "StreamingInputCall")
	if err != nil {
		return err
	}
	for range messages {
		if err := s.SendMsg(ctx, &pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: make([]byte, size)}}); err != nil {
			return err
		}
	}
	if err := s.CloseSend(ctx); err != nil {
		return err
	}
	out := &pb.StreamingInputCallResponse{}
	if err := s.RecvMsg(ctx, out); err != nil || out.AggregatedPayloadSize != messages*size {
		return fmt.Errorf("%d bytes, %v", out.AggregatedPayloadSize, err)
	}
	return nil
}

func (c grpcClient) bothStreams(ctx context.Context) error {
	s, err := c.stream(ctx, "FullDuplexCall")
	if err != nil {
		return err
	}
	for i := range messages {
		body := randomBytes(i * 100)
		if err := s.SendMsg(ctx, &pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: body}}); err != nil {
			return err
		}
		out := &pb.StreamingOutputCallResponse{}
		if err := s.RecvMsg(ctx, out); err != nil || string(out.Payload.GetBody()) != string(body) {
			return fmt.Errorf("message %d: %d bytes, %v", i, len(out.Payload.GetBody()), err)
		}
	}
	if err := s.CloseSend(ctx); err != nil {
		return err
	}
	err = s.RecvMsg(ctx, &pb.StreamingOutputCallResponse{})
	if st := status.Convert(err); st.Code() != codes.DataLoss || !strings.Contains(st.Message(), "the end") {
		return fmt.Errorf("the stream ends with %v", err)
	}
	return nil
}
