package etcd_test

import (
	"slices"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// headerAt is the header of a response from a revision.
func headerAt(revision int64) *pb.ResponseHeader {
	h := header()
	h.Revision = revision
	return h
}

// state is an endpoint and the revision of its snapshot.
type state struct {
	addr     string
	revision int64
}

// statesOf returns the states of snapshots with at most one endpoint each.
func statesOf(all []*registry.Snapshot) (states []state) {
	for _, s := range all {
		now := state{revision: s.Revision}
		if len(s.Endpoints) > 0 {
			now.addr = s.Endpoints[0].Addr
		}
		states = append(states, now)
	}
	return states
}

// TestOldEvents: a watch takes no event that is older than its list, or than an earlier event. A member of etcd may send such events
// that was behind when the watch opened there, and a progress notification from before.
func TestOldEvents(t *testing.T) {
	var now atomic.Int64 // for probes
	now.Store(5)
	e := startScripted(t, func(_ int, s watchStream) error {
		if _, err := s.asked(); err != nil {
			return err
		}
		if err := s.confirm(1); err != nil {
			return err
		}
		now.Store(8)
		for _, resp := range []*pb.WatchResponse{
			{Header: headerAt(3)},
			{Header: headerAt(4), Events: putAt(4, "s", "10.0.0.1:80")},
			{Header: headerAt(8), Events: slices.Concat(putAt(5, "s", "10.0.0.2:80"), putAt(6, "s", "10.0.0.3:80"))},
			{Header: headerAt(8), Events: []*mvccpb.Event{{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: []byte(prefix + "/s/n"), ModRevision: 5}}}},
			{Header: headerAt(8), Events: putAt(7, "s", "10.0.0.4:80")},
			{Header: headerAt(8), Events: slices.Concat(putAt(7, "s", "10.0.0.5:80"), putAt(8, "s", "10.0.0.6:80"))},
		} {
			resp.WatchId = 1
			if err := s.Send(resp); err != nil {
				return err
			}
		}
		_, err := s.asked()
		return err
	})
	e.list = func(service string) *pb.RangeResponse {
		if service == "s" {
			return &pb.RangeResponse{Header: headerAt(5)}
		}
		return &pb.RangeResponse{Header: headerAt(now.Load())}
	}
	got := registrytest.Watch(t, etcd.Keys(open(t, e.addr, nil)), "s")
	got.WaitAddrs("10.0.0.6:80")
	want := []state{{"", 5}, {"10.0.0.3:80", 6}, {"10.0.0.4:80", 7}, {"10.0.0.6:80", 8}}
	if states := statesOf(got.History()); !slices.Equal(states, want) {
		t.Errorf("the states were %v, want %v", states, want)
	}
}

// TestListFromThePast: a list that is older than what was seen before is not used, as etcd responds from the present to the next list.
// Nothing is taken for a loss of data.
func TestListFromThePast(t *testing.T) {
	var now, past atomic.Int64
	now.Store(8)
	e := startScripted(t, func(stream int, s watchStream) error {
		if _, err := s.asked(); err != nil {
			return err
		}
		if err := s.confirm(1); err != nil || stream > 1 {
			return s.confirmAll("10.0.0.4:80")
		}
		now.Store(9)
		if err := s.Send(&pb.WatchResponse{Header: headerAt(9), WatchId: 1, Events: putAt(9, "s", "10.0.0.2:80")}); err != nil {
			return err
		}
		past.Store(1)
		return rpctypes.ErrGRPCNoLeader
	})
	e.list = func(service string) *pb.RangeResponse {
		switch {
		case service == "" || e.lists["s"] == 1:
			return &pb.RangeResponse{Header: headerAt(now.Load())}
		case past.CompareAndSwap(1, 0):
			return &pb.RangeResponse{Header: headerAt(7), Kvs: []*mvccpb.KeyValue{keyAt(6, "s", "10.0.0.1:80")}}
		}
		now.Store(10)
		return &pb.RangeResponse{Header: headerAt(10), Kvs: []*mvccpb.KeyValue{keyAt(10, "s", "10.0.0.3:80")}}
	}
	r := open(t, e.addr, nil)
	got := registrytest.Watch(t, etcd.Keys(r), "s")
	got.WaitAddrs("10.0.0.3:80")
	want := []state{{"", 8}, {"10.0.0.2:80", 9}, {"10.0.0.3:80", 10}}
	if states := statesOf(got.History()); !slices.Equal(states, want) {
		t.Errorf("the states were %v, want %v", states, want)
	}
	if n := r.Stats().DataLosses; n != 0 || past.Load() != 0 {
		t.Errorf("%d losses of data; %d lists from the past were not sent", n, past.Load())
	}
}

// TestRevisionStaysLower: if all responses are from an earlier revision, in the same term of the same cluster, etcd has lost data.
func TestRevisionStaysLower(t *testing.T) {
	var revision atomic.Int64
	revision.Store(9)
	e := startScripted(t, func(_ int, s watchStream) error { return s.confirmAll("10.0.0.1:80") })
	e.list = func(string) *pb.RangeResponse { return &pb.RangeResponse{Header: headerAt(revision.Load())} }
	r := open(t, e.addr, brief)
	registrytest.Watch(t, r, "s").WaitAddrs()
	revision.Store(8)
	eventually.True(t, "a loss of data", func() bool { return r.Stats().DataLosses == 1 })
}

// TestOldRemoval: a registration puts its key again after each removal, but not after one from before its put, which a member of etcd
// may send that was behind.
func TestOldRemoval(t *testing.T) {
	const rounds = 5
	var now atomic.Int64 // for lists and probes
	now.Store(putRevision - 1)
	remove := func(s watchStream, number int64, key string, revision int64) error {
		now.Store(revision)
		return s.Send(&pb.WatchResponse{Header: headerAt(revision), WatchId: number, Events: []*mvccpb.Event{
			{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: []byte(prefix + "/" + key), ModRevision: revision}},
		}})
	}
	puts := make(chan string, 2+rounds)
	e := startScripted(t, func(_ int, s watchStream) error {
		var watched int64 // the watch of the key that is removed
		for number := range int64(2) {
			key, err := s.asked()
			if key == "removed/n@10.0.0.1:80" {
				watched = number
			}
			if err == nil {
				err = s.confirm(number)
			}
			if err == nil {
				err = remove(s, number, key, putRevision)
			}
			if err != nil {
				return err
			}
		}
		for <-puts != "removed/n@10.0.0.1:80" {
		}
		for i := range int64(rounds) {
			if err := remove(s, watched, "removed/n@10.0.0.1:80", putRevision+1+i); err != nil {
				return err
			}
			<-puts
		}
		_, err := s.asked()
		return err
	})
	e.put = puts
	e.list = func(string) *pb.RangeResponse { return &pb.RangeResponse{Header: headerAt(now.Load())} }
	r := open(t, e.addr, nil)
	register := func(service string) (puts func() int) {
		waitState(t, r.Register(registry.Registration{Service: service, Node: "n", Addr: "10.0.0.1:80"}), registry.Registered)
		return func() int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.puts[service+"/n@10.0.0.1:80"]
		}
	}
	stays := register("stays")
	eventually.True(t, "the watch of the key that stays", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.lists["stays/n@10.0.0.1:80"] > 0
	})
	removed := register("removed")
	eventually.True(t, "all puts", func() bool { return removed() == 1+rounds })
	if n := stays(); n != 1 {
		t.Errorf("%d puts after an old removal", n)
	}
}

// TestRoomAgain: once a service with too many keys has room for another one, its keys are listed again.
func TestRoomAgain(t *testing.T) {
	e := startScripted(t, func(_ int, s watchStream) error {
		if _, err := s.asked(); err != nil {
			return err
		}
		if err := s.confirm(1); err != nil {
			return err
		}
		removed := []*mvccpb.Event{{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: []byte(prefix + "/s/n"), ModRevision: 6}}}
		if err := s.Send(&pb.WatchResponse{Header: headerAt(6), WatchId: 1, Events: removed}); err != nil {
			return err
		}
		return s.confirmAll("10.0.0.3:80")
	})
	e.list = func(service string) *pb.RangeResponse {
		switch {
		case service == "":
			return &pb.RangeResponse{Header: headerAt(5)}
		case e.lists["s"] == 1:
			return &pb.RangeResponse{Header: headerAt(5), More: true, Kvs: []*mvccpb.KeyValue{keyAt(5, "s", "10.0.0.1:80")}}
		}
		return &pb.RangeResponse{Header: headerAt(6), Kvs: []*mvccpb.KeyValue{keyAt(4, "s", "10.0.0.2:80")}}
	}
	registrytest.Watch(t, etcd.Keys(open(t, e.addr, brief)), "s").WaitAddrs("10.0.0.2:80")
}
