package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/remora-proxy/remora/registry"
)

// maxReason limits a reason, in bytes: errors of package x509 list all names of a certificate,
// which the other side controls.
const maxReason = 512

// reason is why requests to etcd waited in vain for a connection: no listener, or one side
// refused the other's certificate. gRPC returns it with a failed request. The etcd client only
// reports that the deadline was exceeded.
type reason struct{ last atomic.Pointer[string] }

// observe is a grpc.UnaryClientInterceptor.
func (r *reason) observe(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	s := status.Convert(err)
	switch s.Code() {
	case codes.Canceled: // by this process
	case codes.DeadlineExceeded, codes.Unavailable:
		text := strings.ToValidUTF8(s.Message()[:min(len(s.Message()), maxReason)], "")
		r.last.Store(&text)
	default: // etcd has responded
		r.last.Store(nil)
	}
	return err
}

// refusals are parts of errors of a TLS handshake in which one side refused the other. gRPC reports them as Unavailable,
// and only as text: those of package tls, the alerts of etcd, and those of package certs.
var refusals = []string{"tls: failed to verify certificate", "remote error: tls: ", "tls: peer's certificate refused"}

// codeOf returns the code of the error of a request, which has been explained.
func codeOf(err error) string {
	code := status.Code(err)
	var refused rpctypes.EtcdError
	if errors.As(err, &refused) {
		code = refused.Code()
	}
	// A member without a leader passes its own timeout on as an unknown error.
	timeout := code == codes.Unknown && strings.Contains(err.Error(), context.DeadlineExceeded.Error())
	isLost := timeout || code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
	isRefused := func(text string) bool { return strings.Contains(err.Error(), text) }
	switch {
	case isLost && slices.ContainsFunc(refusals, isRefused):
		return registry.CodeDenied
	case isLost:
		return registry.CodeUnreachable
	case code == codes.Unauthenticated, code == codes.PermissionDenied, errors.Is(err, rpctypes.ErrAuthFailed):
		return registry.CodeDenied
	}
	return registry.CodeFailed
}

func (r *reason) explain(err error) error {
	last := r.last.Load()
	if last == nil || !errors.Is(err, context.DeadlineExceeded) || *last == err.Error() {
		return err
	}
	return fmt.Errorf("%w: %s", err, *last)
}
