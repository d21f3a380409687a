package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/remora-proxy/remora/registry"
)

// joined is an error of gRPC with another cause.
type joined struct {
	error
	cause error
}

func (j *joined) Unwrap() []error { return []error{j.error, j.cause} }

// TestCodeOf: errors of gRPC, of etcd and of this process have codes.
func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("get: %w", context.DeadlineExceeded), registry.CodeUnreachable},
		{status.Error(codes.Unavailable, "connection refused"), registry.CodeUnreachable},
		{status.Error(codes.Unavailable, `transport: authentication handshake failed: EOF`), registry.CodeUnreachable},
		{status.Error(codes.Unavailable, `transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority`), registry.CodeDenied},
		{status.Error(codes.Unavailable, `transport: authentication handshake failed: tls: peer's certificate refused: none of its names is in peers`), registry.CodeDenied},
		{fmt.Errorf("%w: error reading server preface: remote error: tls: certificate required", context.DeadlineExceeded), registry.CodeDenied},
		{status.Error(codes.Unknown, "context deadline exceeded"), registry.CodeUnreachable},
		{status.Error(codes.DeadlineExceeded, "late"), registry.CodeUnreachable},
		{&joined{status.Error(codes.Internal, "x"), context.DeadlineExceeded}, registry.CodeUnreachable},
		{rpctypes.ErrNoLeader, registry.CodeUnreachable},
		{rpctypes.ErrPermissionDenied, registry.CodeDenied},
		{rpctypes.ErrAuthFailed, registry.CodeDenied},
		{rpctypes.ErrInvalidAuthToken, registry.CodeDenied},
		{rpctypes.ErrCorrupt, registry.CodeFailed},
		{status.Error(codes.Unknown, "something else"), registry.CodeFailed},
		{errors.New("something else"), registry.CodeFailed},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}
