package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/fleet/store"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry/etcd"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// timeout bounds each test.
const timeout = time.Minute

// open returns two views of one fleet, as two operators have, and a plain client.
func open(t *testing.T) (ctx context.Context, one, other *store.Store, c *clientv3.Client) {
	t.Helper()
	s, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	connect := func() *store.Store {
		r, err := etcd.New(etcd.Options{Endpoints: []string{s.Endpoint()}, LeaseTTL: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return store.New(r, "/fleet")
	}
	if c, err = clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(func() { cancel(); c.Close() })
	return ctx, connect(), connect(), c
}

// set makes a text the next revision, for all sidecars.
func set(ctx context.Context, s *store.Store, text, by string) error {
	head, at, err := s.Head(ctx)
	if err != nil {
		return err
	}
	return setAt(ctx, s, head, at, text, by)
}

func setAt(ctx context.Context, s *store.Store, head fleet.Head, at int64, text, by string) error {
	next, err := head.Set(fleet.Everywhere(), nil, fleet.Change{By: by})
	if err != nil {
		return err
	}
	return s.Change(ctx, at, &next, &fleet.Revision{Number: next.Newest, Text: text})
}

// TestTwoOperators: of two changes to one head the second is refused, says by whom it was overtaken, and leaves nothing.
func TestTwoOperators(t *testing.T) {
	ctx, one, other, _ := open(t)
	for i, name := range []string{"the first head", "a later head"} {
		head, at, err := other.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := set(ctx, one, "one", "ann"); err != nil {
			t.Fatal(err)
		}
		err = setAt(ctx, other, head, at, "other", "bob")
		var moved *store.MovedError
		if !errors.As(err, &moved) || moved.Now.By != "ann" || !strings.Contains(err.Error(), "the revision has moved on") {
			t.Errorf("%s: %v", name, err)
		}
		if r, err := other.Revision(ctx, int64(i+1)); err != nil || r.Text != "one" {
			t.Errorf("%s: revision %d is %+v, %v", name, i+1, r, err)
		}
	}
}

// TestRevisions: the last revisions stay, and the stable one.
func TestRevisions(t *testing.T) {
	ctx, s, _, _ := open(t)
	for range 103 {
		if err := set(ctx, s, "text", ""); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int64]bool{0: false, 3: false, 4: true, 103: true, 104: false} {
		_, err := s.Revision(ctx, n)
		if want && err != nil || !want && !errors.Is(err, store.ErrUnusable) {
			t.Errorf("revision %d: %v", n, err)
		}
	}
}

// TestFollowHead: a follower has each head. Values that are none are errors.
func TestFollowHead(t *testing.T) {
	ctx, s, _, c := open(t)
	type got struct {
		h   *fleet.Head
		err error
	}
	heads := make(chan got, 16)
	t.Cleanup(s.Follow(func(h *fleet.Head, err error) { heads <- got{h, err} }))
	if g := <-heads; g.h != nil || g.err != nil {
		t.Errorf("without a head: %+v", g)
	}
	if err := set(ctx, s, "text", ""); err != nil {
		t.Fatal(err)
	}
	if g := <-heads; g.err != nil || g.h == nil || g.h.Stable != 1 {
		t.Errorf("%+v", g)
	}
	for _, value := range []string{"", "{", "[]", `"text"`, `{"stable": "1"}`, strings.Repeat("x", 1<<20)} {
		if _, err := c.Put(ctx, "/fleet/head", value); err != nil {
			t.Fatal(err)
		}
		if g := <-heads; g.err == nil {
			t.Errorf("%.20q: %+v", value, g.h)
		}
		if _, _, err := s.Head(ctx); err == nil {
			t.Errorf("%.20q is a head", value)
		}
	}
}

// TestDamagedRevisions: what is not the revision that was asked for is an error.
func TestDamagedRevisions(t *testing.T) {
	ctx, s, _, c := open(t)
	for _, value := range []string{"", "text", "{}", `{"number": 2, "text": ""}`, `{"number": 1, "text": "` + strings.Repeat("x", fleet.MaxText+1) + `"}`} {
		if _, err := c.Put(ctx, "/fleet/revisions/0000000001", value); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Revision(ctx, 1); err == nil {
			t.Errorf("%.40q: %.80v", value, r)
		}
	}
}

// TestStatuses: each sidecar has a status. What can't be read is counted.
func TestStatuses(t *testing.T) {
	ctx, s, other, c := open(t)
	for _, value := range []string{"", "{}", "[]", "{"} {
		if _, err := c.Put(ctx, "/fleet/status/bad"+value, value); err != nil {
			t.Fatal(err)
		}
	}
	a := s.Report("a@1", &fleet.Status{Node: "a", Revision: 1})
	b := other.Report("b@1", &fleet.Status{Node: "b", Revision: 1})
	a.Set(&fleet.Status{Node: "a", Revision: 2, Refused: &fleet.Refusal{Revision: 3, Code: "invalid"}})
	await := func(want ...fleet.Status) {
		t.Helper()
		eventually.True(t, "the statuses", func() bool {
			all, bad, err := s.Statuses(ctx)
			if err != nil || bad != 4 || len(all) != len(want) {
				return false
			}
			for i := range want {
				if all[i].Node != want[i].Node || all[i].Revision != want[i].Revision || (all[i].Refused == nil) != (want[i].Refused == nil) {
					return false
				}
			}
			return true
		})
	}
	await(fleet.Status{Node: "a", Revision: 2, Refused: &fleet.Refusal{}}, fleet.Status{Node: "b", Revision: 1})
	if err := a.Close(ctx); err != nil {
		t.Error(err)
	}
	await(fleet.Status{Node: "b", Revision: 1})
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}
