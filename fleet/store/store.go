// Package store keeps what steers a fleet in etcd, over the connection of package registry/etcd. Under the prefix are:
//
//	head                     fleet.Head: who runs which revision
//	revisions/<number>       fleet.Revision, which never changes; the last maxRevisions are kept, and those that a rollback returns to
//	status/<sidecar>         fleet.Status, under a lease of the sidecar
//
// All values are JSON. A value that can't be read is an error of who reads it, and changes nothing.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/registry/etcd"
)

const (
	// maxRevisions bounds the revisions in etcd, together with the few that the head names. Others that are older can't be
	// rolled back to.
	maxRevisions = 100

	// maxStatuses bounds the sidecars that are read.
	maxStatuses = 10_000

	// statusPage is how many statuses one response of etcd has. With values of 1.5 MiB, which etcd takes, it has 24 MiB.
	statusPage = 16

	// maxStatus bounds a status, in bytes. A longer one counts as bad. One with fleet.MaxServices services, all their latencies
	// and a refusal has some 27 KiB.
	maxStatus = 32 << 10

	// maxValue bounds a value that is read, in bytes. JSON may need six bytes for one of a revision's text.
	maxValue = 6*fleet.MaxText + 4096
)

// ErrUnusable is the error of a revision that is not in etcd, or can't be read there.
var ErrUnusable = errors.New("unusable")

// Store reads and changes the keys of one fleet. Its methods may be called from any goroutine.
type Store struct {
	registry *etcd.Registry
	prefix   string
}

// New returns the Store of the keys with a prefix, which does not end in "/". The Registry stays the caller's.
func New(r *etcd.Registry, prefix string) *Store { return &Store{r, prefix} }

func (s *Store) headKey() string { return s.prefix + "/head" }

func (s *Store) revisionKey(n int64) string { return fmt.Sprintf("%s/revisions/%010d", s.prefix, n) }

func (s *Store) statusPrefix() string { return s.prefix + "/status/" }

// decode reads a value.
func decode(data []byte, to any) error {
	if len(data) > maxValue {
		return fmt.Errorf("%d bytes; expected at most %d", len(data), maxValue)
	}
	return json.Unmarshal(data, to)
}

// get reads one key. Without it, at is 0.
func (s *Store) get(ctx context.Context, key string) (data []byte, at int64, err error) {
	client, err := s.registry.Client(ctx)
	if err != nil {
		return nil, 0, s.registry.Explain(err)
	}
	resp, err := client.Get(ctx, key)
	if err != nil {
		return nil, 0, s.registry.Explain(err)
	}
	if len(resp.Kvs) == 0 {
		return nil, 0, nil
	}
	return resp.Kvs[0].Value, resp.Kvs[0].ModRevision, nil
}

// Head reads the head. at is what Change compares. Before the first change the head is the zero Head.
func (s *Store) Head(ctx context.Context) (h fleet.Head, at int64, err error) {
	data, at, err := s.get(ctx, s.headKey())
	if err != nil || at == 0 {
		return h, 0, err
	}
	if err := decode(data, &h); err != nil {
		return h, 0, fmt.Errorf("%s: %w", s.headKey(), err)
	}
	return h, at, nil
}

// Revision reads a revision.
func (s *Store) Revision(ctx context.Context, n int64) (r fleet.Revision, err error) {
	data, at, err := s.get(ctx, s.revisionKey(n))
	switch {
	case err != nil:
		return r, err
	case at == 0:
		return r, fmt.Errorf("%w: revision %d is not in etcd", ErrUnusable, n)
	}
	if err := decode(data, &r); err != nil {
		return r, fmt.Errorf("%w: %s: %w", ErrUnusable, s.revisionKey(n), err)
	}
	if r.Number != n || len(r.Text) > fleet.MaxText {
		return r, fmt.Errorf("%w: %s has revision %d of %d bytes; expected revision %d of at most %d bytes", ErrUnusable,
			s.revisionKey(n), r.Number, len(r.Text), n, fleet.MaxText)
	}
	return r, nil
}

// MovedError is the error of a change to a head that another change has replaced.
type MovedError struct{ Now fleet.Change }

func (e *MovedError) Error() string {
	by := ""
	if e.Now.By != "" {
		by = " by " + e.Now.By
	}
	return fmt.Sprintf("the revision has moved on: %s%s; look at remora fleet status, and try again", e.Now.What, by)
}

// Change replaces the head that was read at. With a revision it adds that, too. The error is a *MovedError if the head
// is not that of at any more: then nothing has changed.
func (s *Store) Change(ctx context.Context, at int64, next *fleet.Head, added *fleet.Revision) error {
	client, err := s.registry.Client(ctx)
	if err != nil {
		return s.registry.Explain(err)
	}
	head, err := json.Marshal(next)
	if err != nil {
		return err
	}
	then := []clientv3.Op{clientv3.OpPut(s.headKey(), string(head))}
	if added != nil {
		value, err := json.Marshal(added)
		if err != nil {
			return err
		}
		then = append(then, clientv3.OpPut(s.revisionKey(added.Number), string(value)))
		then = append(then, s.forget(next, added.Number-maxRevisions)...)
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(s.headKey()), "=", at)
	resp, err := client.Txn(ctx).If(unchanged).Then(then...).Else(clientv3.OpGet(s.headKey())).Commit()
	if err != nil {
		return s.registry.Explain(err)
	}
	if resp.Succeeded {
		return nil
	}
	moved := &MovedError{fleet.Change{What: "the head is gone"}}
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		var now fleet.Head
		if err := decode(kv.Value, &now); err != nil {
			return fmt.Errorf("%s: %w", s.headKey(), err)
		}
		moved.Now = now.Change
	}
	return moved
}

// forget returns the operations that delete all revisions up to last that head does not name, not only last: a revision that head
// named when it was last could not be deleted then.
func (s *Store) forget(head *fleet.Head, last int64) (ops []clientv3.Op) {
	named := slices.Sorted(slices.Values(append(slices.Clone(head.Past), head.Stable, last+1)))
	from := int64(1)
	for _, n := range slices.Compact(named) {
		if n > last+1 {
			break
		}
		if from < n {
			ops = append(ops, clientv3.OpDelete(s.revisionKey(from), clientv3.WithRange(s.revisionKey(n))))
		}
		from = max(from, n+1)
	}
	return ops
}

// Follow calls notify with each head, until stop. A nil head without an error means that etcd has none: it was never set, or etcd
// has lost it. The rest is as with etcd.Registry.Follow.
func (s *Store) Follow(notify func(h *fleet.Head, err error)) (stop func()) {
	return s.registry.Follow(s.headKey(), func(v etcd.Value) {
		if v.Revision == 0 {
			notify(nil, nil)
			return
		}
		h := new(fleet.Head)
		if err := decode(v.Data, h); err != nil {
			notify(nil, fmt.Errorf("%s: %w", s.headKey(), err))
			return
		}
		notify(h, nil)
	})
}

// First returns the name of the first sidecar that has a status; "" if none has.
func (s *Store) First(ctx context.Context) (name string, err error) {
	client, err := s.registry.Client(ctx)
	if err != nil {
		return "", s.registry.Explain(err)
	}
	resp, err := client.Get(ctx, s.statusPrefix(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
	if err != nil {
		return "", s.registry.Explain(err)
	}
	for _, kv := range resp.Kvs {
		name = string(kv.Key[len(s.statusPrefix()):])
	}
	return name, nil
}

// Unread counts the statuses that Statuses did not pass on.
type Unread struct {
	Bad  int  // can't be read
	More bool // there are more than the 10,000 that Statuses reads
}

// Statuses passes on what each sidecar says of itself, in the order of the keys. It keeps none, so that whoever may write
// statuses can't fill the memory of the sidecar that reads them. A status belongs to each, with all that it refers to.
func (s *Store) Statuses(ctx context.Context, each func(*fleet.Status)) (unread Unread, err error) {
	client, err := s.registry.Client(ctx)
	if err != nil {
		return unread, s.registry.Explain(err)
	}
	from, end := s.statusPrefix(), clientv3.GetPrefixRangeEnd(s.statusPrefix())
	for read := 0; ; {
		resp, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(min(statusPage, maxStatuses-read))))
		if err != nil {
			return unread, s.registry.Explain(err)
		}
		for _, kv := range resp.Kvs {
			if st := decodeStatus(kv.Value); st != nil {
				each(st)
			} else {
				unread.Bad++
			}
		}
		read += len(resp.Kvs)
		if unread.More = resp.More && read == maxStatuses; unread.More || !resp.More {
			return unread, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// decodeStatus reads a status. It returns nil for what no sidecar writes.
func decodeStatus(value []byte) *fleet.Status {
	st := new(fleet.Status)
	if len(value) > maxStatus || json.Unmarshal(value, st) != nil || st.Node == "" || len(st.Services) > fleet.MaxServices {
		return nil
	}
	return st
}

// Report is the status of a sidecar in etcd.
type Report interface {
	Set(st *fleet.Status)            // replaces the status
	Close(ctx context.Context) error // removes it; after an error it goes with its lease
}

// Report puts the status of a sidecar. The name is unique among the sidecars. The caller must Close the Report.
func (s *Store) Report(name string, st *fleet.Status) Report {
	return published{s.registry.Publish(s.statusPrefix()+name, encode(st))}
}

// published is a Report.
type published struct{ p *etcd.Publication }

func (r published) Set(st *fleet.Status) { r.p.Set(encode(st)) }

func (r published) Close(ctx context.Context) error { return r.p.Close(ctx) }

// encode returns a status as JSON.
func encode(st *fleet.Status) string {
	data, err := json.Marshal(st)
	if err != nil {
		panic(err) // it has no value that JSON lacks
	}
	return string(data)
}
