package record

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/internal/cutlink"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/lab/history"
)

// lines is a file in memory.
type lines struct{ syncbuffer.Buffer }

// history returns what was written so far.
func (l *lines) history(t *testing.T) *history.History {
	t.Helper()
	var h history.History
	if err := h.Read(strings.NewReader(l.String())); err != nil {
		t.Fatal(err)
	}
	return &h
}

// etcdWith starts an etcd, and returns a client of it and a link to it.
func etcdWith(t *testing.T) (client *clientv3.Client, link *cutlink.Link) {
	t.Helper()
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	link = cutlink.To(t, e.Addr())
	return clientOf(t, e.Addr()), link
}

func clientOf(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	c, err := Client([]string{addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func put(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := c.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func del(t *testing.T, c *clientv3.Client, key string) (revision int64) {
	t.Helper()
	resp, err := c.Delete(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// brief are the changes without their times and revisions.
func brief(changes []history.Change) (all []string) {
	for _, c := range changes {
		text := c.Service + " " + c.Address
		if c.Deleted {
			text += " deleted"
		}
		if c.Listed {
			text += " listed"
		}
		all = append(all, text)
	}
	return all
}

// TestRecorder: each change is recorded once and in order, also while connections break. What was compacted meanwhile is found in a list.
func TestRecorder(t *testing.T) {
	client, link := etcdWith(t)
	put(t, client, "/r/s/1", `{"Addr":"a"}`)
	put(t, client, "/r/s/1", `{"Addr":"b"}`)
	var out lines
	r, err := Start(t.Context(), clientOf(t, link.Addr()), "/r", NewLog(&out))
	if err != nil {
		t.Fatal(err)
	}
	put(t, client, "/r/s/2", `{"Addr":"c"}`)
	put(t, client, "/other", "x")
	put(t, client, "/r/s/t/1", `{"Addr":"d"}`)
	put(t, client, "/r/s/2", `no value`)
	del(t, client, "/r/s/2")
	lease, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), "/r/s/3", `{"Addr":"e"}`, clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Revoke(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	want := []string{"s b listed", "s c", "s/t d", "s ", "s  deleted", "s e", "s e deleted"}
	eventually.True(t, "the changes", func() bool { return slices.Equal(brief(out.history(t).Changes), want) })

	link.Cut(true)
	put(t, client, "/r/s/4", `{"Addr":"f"}`)
	link.Cut(false)
	want = append(want, "s f")
	eventually.True(t, "the change during a break", func() bool { return slices.Equal(brief(out.history(t).Changes), want) })

	link.Cut(true)
	put(t, client, "/r/s/5", `{"Addr":"g"}`)
	last := del(t, client, "/r/s/4")
	put(t, client, "/r/s/1", `{"Addr":"h"}`)
	if _, err := client.Compact(t.Context(), last+1, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	link.Cut(false)
	want = append(want, "s g listed", "s h listed", "s f deleted listed")
	eventually.True(t, "the changes that were compacted", func() bool { return slices.Equal(brief(out.history(t).Changes), want) })

	put(t, client, "/r/s/1", `{"Addr":"i"}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	h := out.history(t)
	if got := brief(h.Changes); !slices.Equal(got, append(want, "s i")) {
		t.Errorf("got %q", got)
	}
	for _, v := range h.Check(history.DefaultBounds) {
		t.Error(v)
	}
	if len(h.Ticks) < 2 {
		t.Errorf("%d ticks", len(h.Ticks))
	}
}

// TestOldEvents: events that the recorder has had are not recorded again.
func TestOldEvents(t *testing.T) {
	var out lines
	r := &Recorder{prefix: "/r/", log: NewLog(&out), keys: make(map[string]found), news: make(chan struct{})}
	event := func(revision int64) *clientv3.Event {
		return &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte("/r/s/1"), ModRevision: revision, CreateRevision: revision}}
	}
	for _, revisions := range [][]int64{{2, 3, 3}, {2, 3}, {3, 4}, {1}} {
		var all []*clientv3.Event
		for _, n := range revisions {
			all = append(all, event(n))
		}
		r.take(all, time.Time{})
	}
	var got []int64
	for _, c := range out.history(t).Changes {
		got = append(got, c.Revision)
	}
	if want := []int64{2, 3, 3, 4}; !slices.Equal(got, want) || r.heard != 4 {
		t.Errorf("recorded %v up to %d, want %v", got, r.heard, want)
	}
}

// TestViews: each view is recorded once, with the run of the sidecar.
func TestViews(t *testing.T) {
	responses := []string{
		`{"services": {"s": {"version": 0, "endpoints": []}}}`,
		`{"services": {"s": {"version": 3, "source": "cache", "endpoints": [{"address": "a"}]}}}`,
		`{"services": {"s": {"version": 3, "source": "cache", "endpoints": [{"address": "a"}]}}}`,
		`{"services": {"s": {"version": 4, "source": "live", "revision": 7, "endpoints": []}}}`,
		`{`,
		`{"services": {"s": {"version": 4, "source": "live", "revision": 7, "endpoints": []}}}`,
		`{"services": {"s": {"version": 2, "source": "live", "revision": 8, "endpoints": [{"address": "a"}, {"address": "b"}]}}}`,
	}
	served := 0
	ctx, cancel := context.WithCancel(t.Context())
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t" {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		if _, err := w.Write([]byte(responses[min(served, len(responses)-1)])); err != nil {
			t.Error(err)
		}
		if served++; served > len(responses) {
			cancel()
		}
	}))
	defer admin.Close()
	var out lines
	Views(ctx, Sidecar{Name: "x", Admin: strings.TrimPrefix(admin.URL, "http://"), Token: "t"}, NewLog(&out))
	got := out.history(t).Views
	want := []history.View{
		{Sidecar: "x", Service: "s", Cached: true, Endpoints: []string{"a"}},
		{Sidecar: "x", Service: "s", Revision: 7, Endpoints: []string{}},
		{Sidecar: "x", Run: 1, Service: "s", Revision: 8, Endpoints: []string{"a", "b"}},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i, v := range got {
		w := want[i]
		if v.Run != w.Run || v.Revision != w.Revision || v.Cached != w.Cached || !slices.Equal(v.Endpoints, w.Endpoints) {
			t.Errorf("got %+v, want %+v", v, w)
		}
		if v.First.IsZero() || v.Told.Before(v.First) || v.Told.Before(v.Asked) {
			t.Errorf("times of %+v", v)
		}
	}
}

// TestLogError: the first line that can't be written is an error.
func TestLogError(t *testing.T) {
	full := errors.New("full")
	l := NewLog(writerFunc(func([]byte) (int, error) { return 0, full }))
	l.Put(&history.Tick{})
	if !errors.Is(l.Err(), full) {
		t.Errorf("got %v", l.Err())
	}
}

type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }
