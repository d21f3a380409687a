package zookeeper

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/zktest"
	"github.com/remora-proxy/remora/registry"
)

// Numbers of requests, from ZooDefs.OpCode.
const (
	opCreate = 1
	opDelete = 2
	opExists = 3
	opMulti  = 14
)

// overtaken returns an address that leads to a server. Each request waits there until before has returned, which gets its number.
func overtaken(t *testing.T, server string, before func(op int32)) (addr string) {
	t.Helper()
	l := must.Listen(t)
	var tasks sync.WaitGroup
	t.Cleanup(tasks.Wait)
	t.Cleanup(func() { _ = l.Close() })
	tasks.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			tasks.Go(func() {
				defer client.Close()
				_, _ = io.Copy(client, to)
			})
			tasks.Go(func() {
				defer to.Close()
				for n := 0; ; n++ {
					message := make([]byte, 4)
					if _, err := io.ReadFull(client, message); err != nil {
						return
					}
					message = append(message, make([]byte, binary.BigEndian.Uint32(message))...)
					if _, err := io.ReadFull(client, message[4:]); err != nil {
						return
					}
					if n > 0 { // the first is the greeting
						before(int32(binary.BigEndian.Uint32(message[8:])))
					}
					if _, err := to.Write(message); err != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// TestRegisterRequests: a registration where nothing is asks for each node at most once before those above it are there, and once after
// that.
func TestRegisterRequests(t *testing.T) {
	srv := zktest.Start(t)
	s := storeAt(t, srv.Addr())
	var mu sync.Mutex
	creations := 0
	r := s.openAt(overtaken(t, srv.Addr(), func(op int32) {
		mu.Lock()
		defer mu.Unlock()
		if op == opCreate {
			creations++
		}
	}), grace, nil)
	waitState(t, r.Register(at("10.0.0.1:80", 1)), registry.Registered)
	mu.Lock()
	defer mu.Unlock()
	if most := 2*5 - 1; creations > most { // chroot, dubbo, interface, providers and record; what the chroot is in is there
		t.Errorf("%d nodes were to be made, want at most %d", creations, most)
	}
}

// TestOvertaken: a registration reaches its goal at once, whatever another process does to its node, or to the nodes above, just before
// a request.
func TestOvertaken(t *testing.T) {
	type stage struct {
		srv  *zktest.Server
		s    *store
		path string // of the record
	}
	set := func(s stage) {
		if _, err := s.s.raw.Set(context.Background(), s.path, []byte("other")); err != nil {
			t.Error(err)
		}
	}
	create := func(s stage) {
		if err := s.s.raw.Create(context.Background(), s.path, nil, true); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(s stage) // before the registration
		op      int32         // the request that is overtaken, once
		passes  int           // requests of this kind that pass before
		other   func(s stage)
		stays   bool // the other process has the node in the end
	}{
		"the node is made":                      {func(s stage) { s.s.set("/dubbo/"+hello+"/providers/other", "") }, opCreate, 0, create, false},
		"the nodes above are made":              {nil, opCreate, 4, func(s stage) { s.s.set("/dubbo/"+hello+"/providers/other", "") }, false},
		"the node of another is changed":        {func(s stage) { s.s.set("/dubbo/"+hello+"/providers/other", ""); create(s) }, opMulti, 0, set, false},
		"the node of another is deleted":        {func(s stage) { s.s.set("/dubbo/"+hello+"/providers/other", ""); create(s) }, opMulti, 0, func(s stage) { s.srv.Delete(s.path) }, false},
		"the node is changed before it is gone": {nil, opDelete, 0, set, false},
		"the node is deleted before":            {nil, opDelete, 0, func(s stage) { s.srv.Delete(s.path) }, false},
		"the node is replaced before":           {nil, opDelete, 0, func(s stage) { s.srv.Delete(s.path); create(s) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			srv := zktest.Start(t)
			on := stage{srv: srv, s: storeAt(t, srv.Addr())}
			var mu sync.Mutex
			overtakes, passes := 0, c.passes
			var log said
			r := on.s.openAt(overtaken(t, srv.Addr(), func(op int32) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case op != c.op || overtakes > 0:
				case passes > 0:
					passes--
				default:
					overtakes++
					c.other(on)
				}
			}), grace, logTo(&log))
			reg := at("10.0.0.1:80", 1)
			rec, err := r.recordOf(&reg)
			if err != nil {
				t.Fatal(err)
			}
			on.path = rec.path()
			if c.prepare != nil {
				c.prepare(on)
			}
			h := r.Register(reg)
			waitState(t, h, registry.Registered)
			id, _ := r.handles.current()
			eventually.True(t, "the record", func() bool { return srv.Owner(on.path) == id })
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			err = h.Close(ctx)
			if owner := srv.Owner(on.path); err != nil || (owner > 0) != c.stays || owner == id {
				t.Errorf("closed: %v, the owner is %d", err, owner)
			}
			mu.Lock()
			defer mu.Unlock()
			if overtakes != 1 || log.count("level=WARN") > 0 {
				t.Errorf("overtaken %d times; the log has %s", overtakes, log.String())
			}
		})
	}
}
