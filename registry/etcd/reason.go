package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxReason bounds what is kept of a reason, in bytes: those of package x509 list
// all names of a certificate, and the certificate is the other side's.
const maxReason = 512

// reason is why requests to etcd had to wait in vain for a connection: nobody
// listens, or one side refuses the other's certificate. gRPC tells with the
// request that it failed, from where the etcd client passes on that time has run
// out, and no more.
type reason struct{ last atomic.Pointer[string] }

// observe is a grpc.UnaryClientInterceptor.
func (r *reason) observe(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	s := status.Convert(err)
	switch s.Code() {
	case codes.Canceled: // by us
	case codes.DeadlineExceeded, codes.Unavailable:
		text := strings.ToValidUTF8(s.Message()[:min(len(s.Message()), maxReason)], "")
		r.last.Store(&text)
	default: // etcd has answered
		r.last.Store(nil)
	}
	return err
}

// explain adds the reason to err if time has run out.
func (r *reason) explain(err error) error {
	last := r.last.Load()
	if last == nil || !errors.Is(err, context.DeadlineExceeded) || *last == err.Error() {
		return err
	}
	return fmt.Errorf("%w: %s", err, *last)
}
