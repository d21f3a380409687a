package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/fleet/store"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
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

// TestRevisions: the last hundred revisions stay, the stable one, and those that a rollback returns to. A revision that was
// one of these goes once it is none of them.
func TestRevisions(t *testing.T) {
	ctx, s, _, _ := open(t)
	change := func(change func(h fleet.Head) (fleet.Head, error)) {
		t.Helper()
		head, at, err := s.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next, err := change(head)
		if err != nil {
			t.Fatal(err)
		}
		var added *fleet.Revision
		if next.Newest > head.Newest {
			added = &fleet.Revision{Number: next.Newest, Text: "text"}
		}
		if err := s.Change(ctx, at, &next, added); err != nil {
			t.Fatal(err)
		}
	}
	some := fleet.Target{Percent: 5}
	try := func(count int) { // revisions that are rolled out to some, and taken back
		t.Helper()
		for range count {
			change(func(h fleet.Head) (fleet.Head, error) { return h.Set(some, nil, fleet.Change{}) })
			change(func(h fleet.Head) (fleet.Head, error) { return h.Rollback(fleet.Change{}) })
		}
	}
	use := func(count int) { // revisions that become stable
		t.Helper()
		for range count {
			change(func(h fleet.Head) (fleet.Head, error) { return h.Set(fleet.Everywhere(), nil, fleet.Change{}) })
		}
	}
	expect := func(what string, want ...int64) {
		t.Helper()
		var got []int64
		head, _, err := s.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for n := range head.Newest + 2 {
			if _, err := s.Revision(ctx, n); err == nil {
				got = append(got, n)
			} else if !errors.Is(err, store.ErrUnusable) {
				t.Fatal(err)
			}
		}
		if old := got[:max(0, len(got)-100)]; !slices.Equal(old, want) || got[len(got)-1] != head.Newest {
			t.Errorf("%s: besides the last hundred up to %d there are %d, want %d", what, got[len(got)-1], old, want)
		}
	}
	use(3)
	try(110)
	expect("3 is stable, and was 1 and 2 before", 1, 2, 3)
	use(15)
	expect("1 is no step of a rollback any more", 2, 3)
	use(5)
	try(101)
	expect("of the stable ones the last 17", 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133)
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

// statuses returns all statuses.
func statuses(ctx context.Context, s *store.Store) (all []fleet.Status, unread store.Unread, err error) {
	unread, err = s.Statuses(ctx, func(st *fleet.Status) { all = append(all, *st) })
	return all, unread, err
}

// full returns the largest status that a sidecar writes, with so many services. Their counts have 15 digits.
func full(services int) *fleet.Status {
	const count = 999_999_999_999_999
	st := &fleet.Status{
		Node: strings.Repeat("n", 253), Version: strings.Repeat("v", 64), Revision: 1, Services: map[string]fleet.Service{},
		Refused: fleet.RefusalOf(1, "invalid", errors.New(strings.Repeat("<", 4096))),
	}
	for i := range services {
		svc := fleet.Service{Requests: count, Failed: count, Hedges: count, Missed: count, Won: count}
		for range stats.HistogramBuckets {
			svc.Latency = append(svc.Latency, count)
		}
		st.Services[fmt.Sprintf("%0100d", i)] = svc
	}
	return st
}

// TestStatuses: each sidecar has a status. What can't be read is counted, as is what no sidecar writes.
func TestStatuses(t *testing.T) {
	ctx, s, other, c := open(t)
	bad := []string{"", "{}", "[]", "{", `{"node": "` + strings.Repeat("x", 32<<10) + `"}`, text(t, full(fleet.MaxServices+1))}
	for _, services := range []int{fleet.MaxServices + 1, 6000} {
		var names []string
		for i := range services {
			names = append(names, fmt.Sprintf(`"%d":{}`, i))
		}
		bad = append(bad, `{"node": "many services", "services": {`+strings.Join(names, ",")+`}}`)
	}
	for i, value := range bad {
		if _, err := c.Put(ctx, fmt.Sprintf("/fleet/status/bad%d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	a := s.Report("a@1", &fleet.Status{Node: "a", Revision: 1})
	b := other.Report("b@1", &fleet.Status{Node: "b", Revision: 1})
	a.Set(&fleet.Status{Node: "a", Revision: 2, Refused: &fleet.Refusal{Revision: 3, Code: "invalid"}})
	await := func(want ...fleet.Status) {
		t.Helper()
		eventually.True(t, "the statuses", func() bool {
			all, unread, err := statuses(ctx, s)
			if err != nil || unread != (store.Unread{Bad: len(bad)}) || len(all) != len(want) {
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

// TestFullStatus: the largest status that a sidecar writes is read as it was written.
func TestFullStatus(t *testing.T) {
	ctx, s, _, c := open(t)
	want := text(t, full(fleet.MaxServices))
	if _, err := c.Put(ctx, "/fleet/status/full", want); err != nil {
		t.Fatal(err)
	}
	all, unread, err := statuses(ctx, s)
	if err != nil || unread != (store.Unread{}) || len(all) != 1 {
		t.Fatalf("%d statuses, %+v, %v; the status has %d bytes", len(all), unread, err, len(want))
	}
	if got := text(t, &all[0]); got != want {
		t.Errorf("got %.200s, want %.200s", got, want)
	}
}

// text returns a status as JSON.
func text(t *testing.T, st *fleet.Status) string {
	t.Helper()
	b, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestManyStatuses: statuses are read page by page, and the first 10,000 only.
func TestManyStatuses(t *testing.T) {
	ctx, s, _, c := open(t)
	if _, err := c.Put(ctx, "/fleet/status0", `{"node": "after the last"}`); err != nil {
		t.Fatal(err)
	}
	written := 0
	for _, test := range []struct {
		count, read int
		more        bool
	}{{150, 150, false}, {10_000, 10_000, false}, {10_001, 10_000, true}} {
		for written < test.count {
			var puts []clientv3.Op
			for ; written < test.count && len(puts) < 100; written++ {
				puts = append(puts, clientv3.OpPut(fmt.Sprintf("/fleet/status/n%05d", written), fmt.Sprintf(`{"node": "n%05d"}`, written)))
			}
			if _, err := c.Txn(ctx).Then(puts...).Commit(); err != nil {
				t.Fatal(err)
			}
		}
		all, unread, err := statuses(ctx, s)
		if err != nil || unread != (store.Unread{More: test.more}) || len(all) != test.read {
			t.Fatalf("of %d: %d statuses, %+v, %v", test.count, len(all), unread, err)
		}
		for i := range all {
			if want := fmt.Sprintf("n%05d", i); all[i].Node != want {
				t.Fatalf("of %d: status %d is of %s, want %s", test.count, i, all[i].Node, want)
			}
		}
	}
}
