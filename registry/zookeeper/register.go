package zookeeper

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/remora-proxy/remora/internal/backoff"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/pursuit"
	"github.com/remora-proxy/remora/registry/zookeeper/session"
)

// Register implements registry.Registrar.
//
// The record is an ephemeral node: it ends with the session. A process that finds the node of its predecessor replaces it in
// one step, so that consumers do not miss it. The drain of the predecessor deletes only what is still its own.
func (r *Registry) Register(reg registry.Registration) registry.Handle {
	h := &handle{Pursuit: pursuit.New(r.tasks.Context(), ErrClosed), r: r, service: reg.Service, changed: make(chan struct{}, 1), backoff: backoff.Backoff{Min: minPause, Max: maxPause}}
	rec, err := r.recordOf(&reg)
	if err != nil {
		r.log.Error("registration is invalid", "service", reg.Service, "code", registry.CodeInvalid, "error", err)
		h.Fail(err)
		return h
	}
	h.record, h.identity = rec, identityOf(&reg)
	if !r.tasks.Go(func() { h.Run(h) }) {
		h.End()
	}
	return h
}

// Pauses between tries to write a record.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// identity is what a change of a registration must leave as it is.
type identity struct{ service, node, addr string }

func identityOf(reg *registry.Registration) identity {
	addr, _ := registry.ParseAddr(reg.Addr)
	return identity{reg.Service, reg.Node, addr.String()}
}

// errIdentity means that a changed registration would be another one.
var errIdentity = errors.New("registry/zookeeper: the change is for another service, node or address")

// handle is one registration.
type handle struct {
	*pursuit.Pursuit
	r        *Registry
	service  string
	identity identity
	changed  chan struct{} // the record has changed; capacity 1

	mu     sync.Mutex
	record record

	// Of the goroutine: the records that may be there, and the sessions that may own them, the last ones.
	written []record
	owners  []int64
	backoff backoff.Backoff
}

// Change implements registry.Handle.
func (h *handle) Change(reg registry.Registration) {
	rec, err := h.r.recordOf(&reg)
	if err == nil && identityOf(&reg) != h.identity {
		err = errIdentity
	}
	if err != nil {
		h.r.log.Error("registration change is invalid, ignored", "service", h.service, "code", registry.CodeInvalid, "error", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.record == rec {
		return
	}
	h.record = rec
	h.Renew()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// Leave implements pursuit.Registrant: the node stays as long as the session.
func (h *handle) Leave(op context.Context) { <-op.Done() }

// Pause implements pursuit.Registrant.
func (h *handle) Pause(op context.Context) { h.backoff.Wait(op) }

// Keep implements pursuit.Registrant.
func (h *handle) Keep(op context.Context) {
	claimed := int64(0) // the session in which the node was taken over; it is taken over once per session
	isTold := false     // the log has said since the last success why the registration fails
	for op.Err() == nil {
		err := h.keep(op, &claimed)
		if op.Err() != nil {
			return
		}
		if err == nil {
			h.backoff.Reset()
			if h.Err() == nil { // registered
				isTold = false
			}
			continue
		}
		if !isTold {
			isTold = true
			h.r.log.Warn("registration failed, will retry", "service", h.service, "code", codeOf(err), "error", err)
		}
		h.Settle(op, registry.Pending, err)
		h.backoff.Wait(op)
	}
}

// keep makes the node, and waits until something about it has changed, or the connection.
func (h *handle) keep(op context.Context, claimed *int64) error {
	id, connection := h.r.handles.current()
	if id == 0 {
		err := h.r.contact.Condition().Err
		if err == nil {
			err = session.ErrLost
		}
		h.Settle(op, registry.Pending, err)
		select {
		case <-op.Done():
		case <-connection:
		}
		return nil
	}
	select {
	case <-h.changed: // cleared before the record is read
	default:
	}
	h.mu.Lock()
	rec := h.record
	h.mu.Unlock()
	fired, stop := h.r.handles.watch(rec.path())
	defer stop()
	if err := h.Put(func() error { return h.put(op, rec, id, claimed) }); err != nil {
		return err
	}
	if err := h.remove(op, &rec); err != nil {
		return err
	}
	if h.Settle(op, registry.Registered, nil) {
		h.r.log.Info("registered", "service", h.service, "node", shown(rec.name))
	}
	select {
	case <-op.Done():
	case <-connection:
	case <-h.changed:
	case <-fired:
	}
	return nil
}

// put makes the node of a record, with a watch. A node of another session is replaced once in a session of this process. If
// another process then replaces it in turn, that one may keep it.
func (h *handle) put(op context.Context, rec record, id int64, claimed *int64) error {
	ctx, cancel := context.WithTimeout(op, requestTimeout)
	defer cancel()
	if !slices.Contains(h.written, rec) {
		h.written = append(h.written, rec)
	}
	if !slices.Contains(h.owners, id) {
		h.owners = append(h.owners[max(0, len(h.owners)-maxOwners+1):], id)
	}
	for {
		st, err := h.r.session.Exists(ctx, rec.path(), true)
		switch {
		case err == session.NoNode:
			err = h.make(ctx, rec)
		case err != nil || st.Owner == id || *claimed == id:
		default:
			err = h.r.session.Replace(ctx, rec.path(), st.Version, []byte(rec.data))
		}
		switch err {
		case session.NodeExists, session.BadVersion, session.NoNode: // another process was faster
			continue
		case nil:
			*claimed = id
		}
		return err
	}
}

const maxOwners = 8

// make makes the node of a record, and the nodes above it.
func (h *handle) make(ctx context.Context, rec record) error {
	err := h.r.session.Create(ctx, rec.path(), []byte(rec.data), true)
	if err != session.NoNode {
		return err
	}
	if err := h.makeDir(ctx, rec.dir); err != nil {
		return err
	}
	return h.r.session.Create(ctx, rec.path(), []byte(rec.data), true)
}

// makeDir makes a node that others will be under, and the nodes above it.
func (h *handle) makeDir(ctx context.Context, dir string) error {
	err := h.r.session.Create(ctx, dir, nil, false)
	if err == session.NoNode && dir != "/" {
		if err := h.makeDir(ctx, path.Dir(dir)); err != nil {
			return err
		}
		err = h.r.session.Create(ctx, dir, nil, false)
	}
	if err == session.NodeExists {
		return nil
	}
	return err
}

// Remove implements pursuit.Registrant.
func (h *handle) Remove(op context.Context) error {
	err := h.remove(op, nil)
	if err == nil {
		h.backoff.Reset()
	}
	return err
}

// remove deletes the nodes of all records that were written, but for the one to keep.
func (h *handle) remove(op context.Context, keep *record) error {
	ctx, cancel := context.WithTimeout(op, requestTimeout)
	defer cancel()
	began := time.Now()
	for i := len(h.written) - 1; i >= 0; i-- {
		rec := h.written[i]
		if keep != nil && rec == *keep {
			continue
		}
		if err := h.delete(ctx, rec); err != nil {
			return err
		}
		h.written = slices.Delete(h.written, i, i+1)
		h.r.log.Info("withdrawn", "service", h.service, "node", shown(rec.name), "took", time.Since(began))
	}
	return nil
}

// delete deletes the node of a record, if a session of this process owns it. Writing the data gives the node a version that
// no node has which another process makes meanwhile.
func (h *handle) delete(ctx context.Context, rec record) error {
	for {
		st, err := h.r.session.Exists(ctx, rec.path(), false)
		if err == nil && slices.Contains(h.owners, st.Owner) {
			st, err = h.r.session.Set(ctx, rec.path(), []byte(rec.data))
		}
		if err == nil && !slices.Contains(h.owners, st.Owner) {
			return nil
		}
		if err == nil {
			err = h.r.session.Delete(ctx, rec.path(), st.Version)
		}
		switch err {
		case session.NoNode:
			return nil
		case session.BadVersion:
			continue
		}
		return err
	}
}

// handles is what registrations need to know of the session.
type handles struct {
	mu      sync.Mutex
	id      int64         // of the session; 0 means no connection
	change  chan struct{} // closed when id changes
	watched map[string]chan struct{}
}

func (s *handles) init() {
	s.change, s.watched = make(chan struct{}), make(map[string]chan struct{})
}

func (s *handles) connect(id int64) { s.set(id) }
func (s *handles) lose()            { s.set(0) }

func (s *handles) set(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
	close(s.change)
	s.change = make(chan struct{})
}

// current returns the id of the session, or 0 without a connection, and a channel that is closed once that changes.
func (s *handles) current() (id int64, change <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.change
}

// watch returns a channel that receives once the node at path changes.
func (s *handles) watch(path string) (fired <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched[path] = c
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.watched[path] == c {
			delete(s.watched, path)
		}
	}
}

func (s *handles) changed(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.watched[path] <- struct{}{}:
	default:
	}
}
