package etcd

import (
	"context"
	"log/slog"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/registry"
)

// TestFollower: a follower is called with what a key has after a list or changes, if that is news.
func TestFollower(t *testing.T) {
	r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact()}
	r.position.init()
	ctx, cancel := context.WithCancel(t.Context())
	var got []Value
	f := &follower{r: r, ctx: ctx, notify: func(v Value) { got = append(got, v) }}
	kv := func(data string, revision int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte("/a"), Value: []byte(data), ModRevision: revision}
	}
	list := func(kvs ...*mvccpb.KeyValue) func() {
		return func() {
			f.listed(r.position.mark(), mark{}, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: 1}, Kvs: kvs})
		}
	}
	change := func(events ...*mvccpb.Event) func() { return func() { f.changed(&pb.WatchResponse{Events: events}) } }
	put := func(data string, revision int64) *mvccpb.Event {
		return &mvccpb.Event{Type: mvccpb.PUT, Kv: kv(data, revision)}
	}
	remove := &mvccpb.Event{Type: mvccpb.DELETE, Kv: kv("", 9)}
	for i, step := range []struct {
		do       func()
		data     string
		revision int64
		isNews   bool
	}{
		{list(), "", 0, true},
		{list(), "", 0, false},
		{list(kv("a", 2)), "a", 2, true},
		{list(kv("a", 2)), "a", 2, false},
		{list(kv("b", 2)), "b", 2, true}, // of an etcd that has lost its data
		{change(put("b", 3)), "b", 3, true},
		{change(), "b", 3, false},
		{change(put("c", 4), put("d", 5)), "d", 5, true},
		{change(put("e", 6), remove), "", 0, true},
		{change(remove, put("f", 7)), "f", 7, true},
		{list(), "", 0, true},
		{cancel, "", 0, false},
		{list(kv("a", 2)), "", 0, false},
	} {
		calls := len(got)
		if step.isNews {
			calls++
		}
		step.do()
		if wake, lacksList := f.settle(time.Now()); !wake.IsZero() || lacksList {
			t.Errorf("step %d: wake %v, lacks a list: %t", i, wake, lacksList)
		}
		if len(got) != calls {
			t.Errorf("step %d: called %d times in all, want %d", i, len(got), calls)
		}
		if last := got[len(got)-1]; string(last.Data) != step.data || last.Revision != step.revision {
			t.Errorf("step %d: %s at %d", i, last.Data, last.Revision)
		}
	}
	if n := r.stats.losses.Load(); n != 0 {
		t.Errorf("%d losses of data", n)
	}
}

// TestRemovals: of removals that nobody has taken yet, the last one counts.
func TestRemovals(t *testing.T) {
	r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact()}
	r.position.init()
	s := &removals{r: r, gone: make(chan int64, 1)}
	expect := func(what string, want int64) {
		t.Helper()
		got := int64(0)
		select {
		case got = <-s.gone:
		default:
		}
		if got != want {
			t.Errorf("%s: removed at %d, want %d", what, got, want)
		}
	}
	kv := &mvccpb.KeyValue{Key: []byte("/a"), ModRevision: 5}
	list := func(revision int64, kvs ...*mvccpb.KeyValue) {
		s.listed(r.position.mark(), mark{}, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: revision}, Kvs: kvs})
	}
	list(6, kv)
	expect("a list with the key", 0)
	list(7)
	expect("a list without the key", 7)
	s.changed(&pb.WatchResponse{Events: []*mvccpb.Event{{Type: mvccpb.PUT, Kv: kv}}})
	expect("a put", 0)
	list(8)
	s.changed(&pb.WatchResponse{Events: []*mvccpb.Event{
		{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{ModRevision: 9}}, {Type: mvccpb.PUT, Kv: kv}, {Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{ModRevision: 11}},
	}})
	expect("several", 11)
}
