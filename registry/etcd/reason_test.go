package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestReason checks that the reason of the last request is added to an exceeded
// deadline, with limited length, and to no other error.
func TestReason(t *testing.T) {
	late, other := context.DeadlineExceeded, errors.New("etcdserver: authentication failed")
	for _, c := range []struct {
		name string
		with []error // of requests
		err  error
		want string
	}{
		{"no request", nil, late, late.Error()},
		{"a reason", []error{status.Error(codes.DeadlineExceeded, "refused")}, late, late.Error() + ": refused"},
		{"another error", []error{status.Error(codes.Unavailable, "refused")}, other, other.Error()},
		{"an error of etcd's since",
			[]error{status.Error(codes.Unavailable, "refused"), status.Error(codes.NotFound, "x")}, late, late.Error()},
		{"a response since", []error{status.Error(codes.Unavailable, "refused"), nil}, late, late.Error()},
		{"a request cancelled since",
			[]error{status.Error(codes.Unavailable, "refused"), status.Error(codes.Canceled, "x")}, late, late.Error() + ": refused"},
		{"nothing new", []error{status.Error(codes.DeadlineExceeded, late.Error())}, late, late.Error()},
	} {
		var r reason
		for _, err := range c.with {
			r.request(err)
		}
		if got := r.explain(c.err); got.Error() != c.want || !errors.Is(got, c.err) {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
	var r reason
	r.request(status.Error(codes.Unavailable, strings.Repeat("ü", maxReason)+"z"))
	if got := r.explain(late).Error(); len(got) > len(late.Error())+2+maxReason || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	r.request(status.Error(codes.Unavailable, "x"+strings.Repeat("ü", maxReason)))
	if got := r.explain(late).Error(); !utf8.ValidString(got) {
		t.Errorf("cut within a character: %s", got)
	}
}

// request observes a request that ends with err.
func (r *reason) request(err error) {
	_ = r.observe(context.Background(), "", nil, nil, nil,
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err })
}
