package etcd

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/registry"
)

// TestRoom: a service with too many keys is listed again for the room that keys have left: after a while, and at once if half of the keys
// have gone. It is not if others have taken the room, or if all keys fit.
func TestRoom(t *testing.T) {
	const listed = 10
	for _, c := range []struct {
		name      string
		more      bool // there are more keys than were listed
		gone, new int  // keys that leave, and that come then
		waits     time.Duration
	}{
		{"no key has gone", true, 0, 0, -1},
		{"one has gone", true, 1, 0, roomEvery},
		{"less than half have gone", true, 4, 0, roomEvery},
		{"half have gone", true, 5, 0, 0},
		{"all have gone", true, 10, 0, 0},
		{"others have come", true, 5, 5, -1},
		{"most others have come", true, 5, 4, roomEvery},
		{"more have come and one has gone", true, 0, 3, -1},
		{"all keys fit", false, 9, 0, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact()}
			r.position.init()
			s := &service{r: r, ctx: t.Context(), prefix: "/s/", view: newView(1, 1), count: registry.NewCount(&r.tally), notify: func(*registry.Snapshot) {}}
			defer s.end()
			kv := func(i int) *mvccpb.KeyValue {
				return &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/s/%d", i), Value: fmt.Appendf(nil, `{"Addr":"10.0.0.%d:80"}`, 1+i), ModRevision: 1}
			}
			var all []*mvccpb.KeyValue
			for i := range listed {
				all = append(all, kv(i))
			}
			s.listed(r.position.mark(), mark{}, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: 1}, Kvs: all, More: c.more})
			change := func(ev *mvccpb.Event) {
				s.changed(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 2}, Events: []*mvccpb.Event{ev}})
			}
			for i := range c.gone {
				change(&mvccpb.Event{Type: mvccpb.DELETE, Kv: kv(i)})
			}
			for i := range c.new {
				change(&mvccpb.Event{Type: mvccpb.PUT, Kv: kv(listed + i)})
			}
			w := &watch{of: newWatches(r), ctx: t.Context(), subject: s, state: following}
			w.act(s.room.since)
			if c.waits > 0 {
				if w.state != following || !w.wake.Equal(s.room.since.Add(c.waits)) {
					t.Errorf("the watch is in state %d until %v after the list", w.state, w.wake.Sub(s.room.since))
				}
				w.act(w.wake)
			} else if c.waits < 0 {
				w.act(s.room.since.Add(time.Hour))
			}
			if lists := w.state == pausing; lists != (c.waits >= 0) {
				t.Errorf("listed again: %v", lists)
			}
			w.sleep(time.Time{})
		})
	}
}
