package fleet

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
)

// TestIsUncertain: etcd may have made a change if its response is missing, whoever ended the wait.
func TestIsUncertain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("the head has changed"), false},
		{&etcd.RequestError{Code: registry.CodeFailed, Err: errors.New("no space")}, false},
		{&etcd.RequestError{Code: registry.CodeDenied, Err: context.DeadlineExceeded}, false},
		{&etcd.RequestError{Code: registry.CodeUnreachable, Err: context.DeadlineExceeded}, true},
		{fmt.Errorf("head: %w", &etcd.RequestError{Code: registry.CodeFailed, Err: context.Canceled}), true},
	} {
		if got := isUncertain(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
