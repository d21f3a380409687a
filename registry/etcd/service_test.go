package etcd

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/registry"
)

// TestMaxBad: a service counts at most maxBad keys with bad values. One that is put right, or removed, makes room for another.
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
	s.changed(&pb.WatchResponse{Header: &pb.ResponseHeader{}, Events: []*mvccpb.Event{{Type: mvccpb.DELETE, Kv: keyOf(1, "")}}})
	expect(maxBad - 1)
}

// TestTooManyKeys: whoever writes more keys of a service than are read pushes out none that is known. A start uses the first keys.
func TestTooManyKeys(t *testing.T) {
	const known = "/s/z"
	r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact()}
	r.position.init()
	kv := func(key string, i int) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), Value: fmt.Appendf(nil, `{"Op":0,"Addr":"10.0.%d.%d:80"}`, i/250, 1+i%250), ModRevision: int64(i + 1)}
	}
	list := func(last mark, s *service, revision int64, more bool, all ...*mvccpb.KeyValue) mark {
		return s.listed(r.position.mark(), last, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: revision}, Kvs: all, More: more})
	}
	var others []*mvccpb.KeyValue
	for i := range registry.MaxListed {
		others = append(others, kv(fmt.Sprintf("/s/%05d", i), i+1))
	}
	s := &service{r: r, prefix: "/s/", view: newView(1, 1)}
	last := list(mark{}, s, 1, false, kv(known, 0), kv("/s/0", 0), kv("/s/00001", 0))
	last = list(last, s, 100_000, true, others...)
	if _, ok := s.view.live[known]; !ok || len(s.view.live) != registry.MaxListed {
		t.Errorf("%d keys are in use, the known one beyond the list: %v", len(s.view.live), ok)
	}
	if _, ok := s.view.live["/s/0"]; ok || s.view.live["/s/00001"].revision != 3 {
		t.Error("the list is not the truth for the keys that it has")
	}
	s.changed(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 100_001}, Events: []*mvccpb.Event{{Type: mvccpb.DELETE, Kv: kv(known, 100_000)}}})
	if _, ok := s.view.live[known]; ok || s.room.due(len(s.view.live)).IsZero() {
		t.Errorf("a key that was deleted stays: %v", ok)
	}
	list(last, s, 100_002, false, others[:2]...)
	if len(s.view.live) != 2 || r.Stats().DataLosses != 0 {
		t.Errorf("in the end %d keys are in use, and data was lost %d times", len(s.view.live), r.Stats().DataLosses)
	}

	start := &service{r: r, prefix: "/s/", view: newView(1, 1)}
	if list(mark{}, start, 100_000, true, others...); len(start.view.live) != registry.MaxListed {
		t.Errorf("a start uses %d keys", len(start.view.live))
	}
}

// TestTooManyKeysAtOnce: a service without a key uses the first ones once it has too many.
func TestTooManyKeysAtOnce(t *testing.T) {
	var log bytes.Buffer
	r := &Registry{log: slog.New(slog.NewTextHandler(&log, nil)), contact: registry.NewContact()}
	r.position.init()
	s := &service{r: r, prefix: "/s/", view: newView(1, 1)}
	last := s.listed(r.position.mark(), mark{}, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: 1}})
	s.listed(r.position.mark(), last, &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: 2}, More: true, Kvs: []*mvccpb.KeyValue{
		{Key: []byte("/s/a"), Value: []byte(`{"Addr":"10.0.0.1:80"}`), ModRevision: 2},
	}})
	if len(s.view.live) != 1 {
		t.Errorf("%d keys are in use", len(s.view.live))
	}
	if n := strings.Count(log.String(), "too many keys"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

// TestTooManyKeysAfterLoss: after a loss of data, the endpoints of keys beyond a list that was cut end like others that are missing.
func TestTooManyKeysAfterLoss(t *testing.T) {
	r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact()}
	r.position.init()
	s := &service{r: r, prefix: "/s/", view: newView(time.Second, time.Second)}
	kv := func(key, addr string) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte("/s/" + key), Value: fmt.Appendf(nil, `{"Addr":%q}`, addr), ModRevision: 1}
	}
	now := time.Now()
	list := func(last mark, cluster uint64, more bool, all ...*mvccpb.KeyValue) mark {
		defer s.view.settle(now)
		return s.listed(r.position.mark(), last, &clientv3.GetResponse{Header: &pb.ResponseHeader{ClusterId: cluster, Revision: 5}, Kvs: all, More: more})
	}
	last := list(mark{}, 1, false, kv("a", "10.0.0.1:80"), kv("z", "10.0.0.2:80"))
	list(last, 2, true, kv("b", "10.0.0.3:80"))
	if got := spell(s.view.current); got != "10.0.0.1:80 10.0.0.2:80 10.0.0.3:80" {
		t.Errorf("after the loss %q are in use", got)
	}
	s.view.settle(now.Add(time.Minute))
	if got := spell(s.view.current); got != "10.0.0.3:80" {
		t.Errorf("in the end %q are in use", got)
	}
}

// TestRevisionOfKept: a snapshot has a revision only if etcd had exactly its endpoints.
func TestRevisionOfKept(t *testing.T) {
	r := &Registry{log: slog.New(slog.DiscardHandler), contact: registry.NewContact()}
	r.position.init()
	var got *registry.Snapshot
	s := &service{
		r: r, ctx: t.Context(), prefix: "/s/", view: newView(time.Second, time.Second), count: registry.NewCount(&r.tally),
		notify: func(s *registry.Snapshot) { got = s },
	}
	defer s.end()
	now := time.Now()
	var last mark
	expect := func(what string, endpoints int, revision int64) {
		t.Helper()
		if s.settle(now); len(got.Endpoints) != endpoints || got.Revision != revision {
			t.Errorf("%s: %d endpoints at revision %d, want %d at %d", what, len(got.Endpoints), got.Revision, endpoints, revision)
		}
		if kept := map[string]int{"a loss of data": 1}[what]; r.Condition().Kept != kept {
			t.Errorf("%s: %d endpoints are kept, want %d", what, r.Condition().Kept, kept)
		}
	}
	list := func(cluster uint64, more bool, addrs ...string) {
		var all []*mvccpb.KeyValue
		for _, addr := range addrs {
			all = append(all, &mvccpb.KeyValue{Key: []byte("/s/" + addr), Value: fmt.Appendf(nil, `{"Addr":%q}`, addr), ModRevision: 1})
		}
		last = s.listed(r.position.mark(), last, &clientv3.GetResponse{Header: &pb.ResponseHeader{ClusterId: cluster, Revision: 5}, Kvs: all, More: more})
	}
	list(1, false, "10.0.0.1:80")
	expect("the first list", 1, 5)
	list(2, false, "10.0.0.2:80")
	expect("a loss of data", 2, 0)
	now = now.Add(time.Minute)
	expect("long after the loss", 1, 5)
	list(2, true, "10.0.0.2:80", "10.0.0.3:80")
	expect("a list that was cut", 2, 0)
}
