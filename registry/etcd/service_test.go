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

// TestMaxBad: a service counts at most maxBad keys with bad values. One that is put right makes room for another.
func TestMaxBad(t *testing.T) {
	r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact()}
	r.position.init()
	s := &service{r: r, ctx: t.Context(), prefix: "/s/", view: newView(1, 1), count: registry.NewCount(&r.tally), notify: func(*registry.Snapshot) {}}
	defer s.end()
	keyOf := func(i int, value string) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/s/%05d", i), Value: []byte(value), ModRevision: int64(i + 1)}
	}
	expect := func(unusable int) {
		t.Helper()
		s.settle(time.Now())
		if now := r.Condition(); now.Unusable != unusable {
			t.Errorf("%d values can't be used, want %d", now.Unusable, unusable)
		}
	}
	change := func(kv *mvccpb.KeyValue) {
		s.changed(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: kv.ModRevision}, Events: []*mvccpb.Event{{Type: mvccpb.PUT, Kv: kv}}})
	}
	all := make([]*mvccpb.KeyValue, maxBad+10)
	for i := range all {
		all[i] = keyOf(i, "garbage")
	}
	s.listed(r.position.mark(), mark{}, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: int64(len(all))}, Kvs: all})
	expect(maxBad)
	change(keyOf(len(all), "garbage"))
	expect(maxBad)
	change(keyOf(0, `{"Op":0,"Addr":"10.0.0.1:80"}`))
	expect(maxBad - 1)
	change(keyOf(len(all)+1, "garbage"))
	expect(maxBad)
}
