package etcd

import (
	"context"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	md "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// streams are the gRPC streams of one kind of watch. The etcd client has watches share
// a stream if the metadata of their contexts are the same.
type streams struct {
	kind    string // differs
	resumed bool   // a watch goes on by itself when its connection breaks

	current atomic.Uint64 // number of the stream that watches join
}

// streamKey is the metadata that keeps streams apart. To etcd it means nothing.
const streamKey = "remora-stream"

// join returns the context for a watch on the current stream. leave has the watches to
// come use another: a stream is for ever bound to the token that it began with, and etcd
// refuses new watches on it once that is not valid any more.
func (s *streams) join(ctx context.Context) (on context.Context, leave func()) {
	n := s.current.Load()
	ctx = md.AppendToOutgoingContext(ctx, streamKey, s.kind+strconv.FormatUint(n, 10))
	if !s.resumed {
		ctx = context.WithValue(ctx, begun{}, new(atomic.Bool))
	}
	return ctx, func() { s.current.CompareAndSwap(n, n+1) }
}

// begun is the key of a stream's *atomic.Bool in its context, which is that of the first
// watch on it.
type begun struct{}

// errResumed ends the watches on a stream that is not resumed. It is of a code with which
// the etcd client does not try again.
var errResumed = status.Error(codes.Aborted, "the connection broke")

// once is a grpc.StreamClientInterceptor.
func once(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
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
