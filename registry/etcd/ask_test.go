package etcd

import (
	"context"
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/registry"
)

// TestAsk: a stream ends if it gives no sign of life any more, while etcd responds otherwise.
func TestAsk(t *testing.T) {
	sign := &pb.WatchResponse{WatchId: clientv3.InvalidWatchID}
	for _, c := range []struct {
		name     string
		response *pb.WatchResponse // before the first ask; nil means none
		isUp     bool
		asks     int
		ends     bool
	}{
		{"signs that may be missing", sign, true, maxAsked, false},
		{"too many missing signs", sign, true, maxAsked + 1, true},
		{"etcd does not respond at all", sign, false, maxAsked + 1, false},
		{"no sign ever", nil, true, maxAsked + 1, false},
		{"another response is no sign", &pb.WatchResponse{WatchId: 1}, true, maxAsked + 1, false},
		{"a refusal is no sign", &pb.WatchResponse{WatchId: clientv3.InvalidWatchID, Canceled: true}, true, maxAsked + 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			f := &feed{of: newWatches(&Registry{contact: registry.NewContact()}), cancel: cancel, open: make(map[int64]*watch)}
			if c.isUp {
				f.of.r.contact.Succeed()
			}
			if c.response != nil {
				f.take(arrival{of: f, resp: c.response})
			}
			for range c.asks {
				f.ask()
			}
			if ends := errors.Is(context.Cause(ctx), errLifeless); ends != c.ends {
				t.Errorf("ends: %v", ends)
			}
			if n := len(f.unsent); n != maxAsked {
				t.Errorf("asked %d times", n)
			}
			f.take(arrival{of: f, resp: &pb.WatchResponse{WatchId: 2}})
			if f.ask(); len(f.unsent) != maxAsked+1 {
				t.Error("not asked after a response")
			}
		})
	}
}
