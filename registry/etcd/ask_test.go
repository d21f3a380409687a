package etcd

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/registry"
)

// TestAsk: a stream ends if it gives no sign of life any more, while etcd responds otherwise. What etcd said before does not count.
func TestAsk(t *testing.T) {
	sign := &pb.WatchResponse{WatchId: clientv3.InvalidWatchID}
	for _, c := range []struct {
		name     string
		response *pb.WatchResponse // before the first ask; nil means none
		answers  string            // of etcd otherwise: "before" the first ask, "meanwhile", or none
		asks     int
		ends     bool
	}{
		{"signs that may be missing", sign, "meanwhile", maxAsked, false},
		{"too many missing signs", sign, "meanwhile", maxAsked + 1, true},
		{"etcd does not respond at all", sign, "", maxAsked + 1, false},
		{"etcd does not respond any more", sign, "before", maxAsked + 1, false},
		{"no sign ever", nil, "meanwhile", maxAsked + 1, false},
		{"another response is no sign", &pb.WatchResponse{WatchId: 1}, "meanwhile", maxAsked + 1, false},
		{"a refusal is no sign", &pb.WatchResponse{WatchId: clientv3.InvalidWatchID, Canceled: true}, "meanwhile", maxAsked + 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			f := &feed{of: newWatches(&Registry{contact: registry.NewContact(), log: slog.New(slog.DiscardHandler)}), cancel: cancel, open: make(map[int64]*watch)}
			if c.answers == "before" {
				f.of.r.succeed()
			}
			if c.response != nil {
				f.take(arrival{of: f, resp: c.response})
			}
			for i := range c.asks {
				f.ask()
				if i == 0 && c.answers == "meanwhile" {
					f.of.r.succeed()
				}
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
