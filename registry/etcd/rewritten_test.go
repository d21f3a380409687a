package etcd

import (
	"fmt"
	"log/slog"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/registry"
)

// TestRewrittenMaxListed checks that keys which did not fit, and fit later, are no
// sign of lost data.
func TestRewrittenMaxListed(t *testing.T) {
	value := []byte(`{"Op":0,"Addr":"10.0.0.1:80"}`)
	key := func(i int) []byte { return fmt.Appendf(nil, "/s/%05d", i) }
	for name, listed := range map[string]int{"put": registry.MaxListed, "listed": registry.MaxListed + 1} {
		t.Run(name, func(t *testing.T) {
			r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact()}
			r.position.init()
			s := &service{r: r, prefix: "/s/", view: newView(1, 1), bad: make(map[string]struct{})}
			all := make([]*mvccpb.KeyValue, listed)
			for i := range all {
				all[i] = &mvccpb.KeyValue{Key: key(i), Value: value, ModRevision: int64(i + 1)}
			}
			last := registry.MaxListed
			after := s.listed(r.position.mark(), mark{}, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: int64(listed)}, Kvs: all[:last], More: listed > last})
			if listed == last {
				all = append(all, &mvccpb.KeyValue{Key: key(last), Value: value, ModRevision: int64(last + 1)})
				s.changed(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: int64(last + 1)}, Events: []*mvccpb.Event{
					{Type: mvccpb.PUT, Kv: all[last]},
				}})
				if n := len(s.view.live); n != registry.MaxListed || !s.room.isShort {
					t.Errorf("%d endpoints after a key too many, short of room: %t", n, s.room.isShort)
				}
			}
			s.changed(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: int64(last + 2)}, Events: []*mvccpb.Event{
				{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: key(0), ModRevision: int64(last + 2)}},
			}})
			s.listed(r.position.mark(), after, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: int64(last + 2)}, Kvs: all[1:]})
			if n := r.Stats().DataLosses; n != 0 || len(s.view.live) != registry.MaxListed {
				t.Errorf("%d losses of data, %d endpoints", n, len(s.view.live))
			}
		})
	}
}

// TestRewrittenBeyondList: a known key beyond a list that was cut may be put again unseen, which is no sign of lost data.
func TestRewrittenBeyondList(t *testing.T) {
	r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact()}
	r.position.init()
	s := &service{r: r, prefix: "/s/", view: newView(1, 1)}
	kv := func(key string, revision int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte("/s/" + key), Value: []byte(`{"Addr":"10.0.0.1:80"}`), ModRevision: revision}
	}
	var last mark
	for i, all := range [][]*mvccpb.KeyValue{{kv("a", 1), kv("z", 2)}, {kv("a", 1)}, {kv("a", 1), kv("z", 11)}, {kv("a", 1), kv("y", 12)}} {
		last = s.listed(r.position.mark(), last, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: int64(10 * (i + 1))}, Kvs: all, More: i > 0})
	}
	if n := r.Stats().DataLosses; n != 0 {
		t.Errorf("%d losses of data", n)
	}
}

// TestRewritten: a key whose revision was seen, and which did not have it then, is a sign of lost data.
func TestRewritten(t *testing.T) {
	for revision, want := range map[int64]uint64{
		3: 0, // as it was in the first list, which is of revision 5
		4: 1, // the first list would have had it
		5: 1, // likewise
		6: 0, // it is newer than the first list
	} {
		r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact()}
		r.position.init()
		s := &service{r: r, prefix: "/s/", view: newView(1, 1)}
		var last mark
		for i, at := range []int64{3, revision} {
			kv := &mvccpb.KeyValue{Key: []byte("/s/a"), Value: []byte(`{"Addr":"10.0.0.1:80"}`), ModRevision: at}
			last = s.listed(r.position.mark(), last, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: int64(5 + i)}, Kvs: []*mvccpb.KeyValue{kv}})
		}
		if n := r.Stats().DataLosses; n != want {
			t.Errorf("revision %d: %d losses of data, want %d", revision, n, want)
		}
	}
}
