package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/remora-proxy/remora/registry"
)

// TestExplain: an error has a code. One of a request that has waited in vain is what the connection has waited for.
func TestExplain(t *testing.T) {
	late, refused, broken := fmt.Errorf("get: %w", context.DeadlineExceeded), rpctypes.ErrPermissionDenied, errors.New("connection refused")
	for name, c := range map[string]struct {
		contact error // the last failure of the connection; nil means none
		err     error
		code    string
		cause   error
	}{
		"late, and no connection":    {broken, late, "of the connection", broken},
		"refused, and no connection": {broken, refused, registry.CodeDenied, refused},
		"late":                       {nil, late, registry.CodeUnreachable, context.DeadlineExceeded},
		"refused":                    {nil, refused, registry.CodeDenied, refused},
	} {
		r := &Registry{contact: registry.NewContact()}
		if c.contact != nil {
			r.contact.Fail("of the connection", c.contact)
		}
		var got *RequestError
		err := r.Explain(c.err)
		if !errors.As(err, &got) || got.Code != c.code || !errors.Is(err, c.cause) || err.Error() != "etcd: "+c.code+": "+got.Err.Error() {
			t.Errorf("%s: %v", name, err)
		}
	}
}
