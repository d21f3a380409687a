package etcd

import (
	"context"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	md "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// streams are the gRPC streams for one kind of watch. Watches of the etcd client share a
// stream if their contexts have the same metadata.
type streams struct {
	kind    string // unique among the Registry's streams
	resumed bool   // a watch resumes by itself when its connection breaks

	current atomic.Uint64 // number of the stream that watches join
}

// streamKey is the metadata key that separates streams. etcd ignores it.
const streamKey = "remora-stream"

// join returns the context for a watch on the current stream. leave makes later watches use
// another stream: a stream keeps the token with which it began, and etcd refuses new watches
// on it once that token is invalid.
func (s *streams) join(ctx context.Context) (on context.Context, leave func()) {
	n := s.current.Load()
	ctx = md.AppendToOutgoingContext(ctx, streamKey, s.kind+strconv.FormatUint(n, 10))
	if !s.resumed {
		ctx = context.WithValue(ctx, begun{}, new(atomic.Bool))
	}
	return ctx, func() { s.current.CompareAndSwap(n, n+1) }
}

// begun is the context key of a stream's *atomic.Bool, in the context of its first watch.
type begun struct{}

// errResumed ends watches on a stream that must not resume: etcd's client does not retry it.
var errResumed = status.Error(codes.Aborted, "the connection broke")

// neverResume is a grpc.StreamClientInterceptor that refuses to resume such a stream.
func neverResume(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	was, _ := ctx.Value(begun{}).(*atomic.Bool)
	if was != nil && was.Load() {
		return nil, errResumed
	}
	s, err := stream(ctx, desc, cc, method, opts...)
	if was != nil && err == nil {
		was.Store(true)
	}
	return s, err
}

// breaks counts the connections to etcd that have ended. It is a stats.Handler of gRPC.
type breaks struct{ atomic.Uint64 }

// HandleConn implements stats.Handler.
func (b *breaks) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnEnd); ok {
		b.Add(1)
	}
}

// HandleRPC implements stats.Handler.
func (b *breaks) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler.
func (b *breaks) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC implements stats.Handler.
func (b *breaks) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
