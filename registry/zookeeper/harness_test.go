package zookeeper

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/internal/zktest"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/zookeeper/session"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const timeout = time.Minute // for any event

// store is a ZooKeeper, and a client that writes records as others do: a real one if the environment names it, else a stand-in.
type store struct {
	t      *testing.T
	addr   string
	chroot string // of the test
	raw    *session.Session
}

// newStore returns a store for a test that needs nothing of the server but its protocol.
func newStore(t *testing.T) *store {
	t.Helper()
	return storeAt(t, zktest.Addr(t))
}

func storeAt(t *testing.T, addr string) *store {
	t.Helper()
	connected := make(connectedOnce, 1)
	s := &store{t: t, addr: addr, chroot: "/" + strings.ReplaceAll(t.Name(), "/", "_") + time.Now().Format("150405.000000")}
	s.raw = session.New(session.Options{Servers: []string{addr}, Timeout: time.Minute, Handler: connected})
	s.raw.Start()
	t.Cleanup(s.raw.Close)
	select {
	case <-connected:
	case <-time.After(timeout):
		t.Fatal("no connection to ZooKeeper")
	}
	return s
}

// connectedOnce is a session.Handler that receives after the first connection.
type connectedOnce chan struct{}

func (c connectedOnce) Connected(int64, bool) {
	select {
	case c <- struct{}{}:
	default:
	}
}
func (connectedOnce) Lost(error)     {}
func (connectedOnce) Changed(string) {}

// set makes a node below the chroot, and those above it, or changes its data.
func (s *store) set(path, data string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	at := s.chroot + path
	for i := 1; i < len(at); i++ {
		if at[i] == '/' {
			if err := s.raw.Create(ctx, at[:i], nil, false); err != nil && err != session.NodeExists {
				s.t.Fatal(err)
			}
		}
	}
	err := s.raw.Create(ctx, at, []byte(data), false)
	if err == session.NodeExists {
		_, err = s.raw.Set(ctx, at, []byte(data))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) delete(path string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := s.raw.Delete(ctx, s.chroot+path, -1); err != nil {
		s.t.Fatal(err)
	}
}

// children returns the names of the children of a node.
func (s *store) children(path string) []string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	names, err := s.raw.Children(ctx, s.chroot+path, false)
	if err != nil && err != session.NoNode {
		s.t.Fatal(err)
	}
	return names
}

// providerPath is the node of a provider's URL.
func providerPath(service, u string) string {
	return "/dubbo/" + service + "/providers/" + url.QueryEscape(u)
}

// open returns a Registry whose session outlives any pause of the machine. change may be nil.
func (s *store) open(change func(*Options)) *Registry { return s.openAt(s.addr, time.Second, change) }

// openAt is open for another address and grace. Once the Registry is closed, it must keep nothing of its watches and registrations.
func (s *store) openAt(addr string, grace time.Duration, change func(*Options)) *Registry {
	s.t.Helper()
	r := s.make(addr, grace, change)
	s.t.Cleanup(func() {
		r.Close()
		r.mirror.mu.Lock()
		defer r.mirror.mu.Unlock()
		r.handles.mu.Lock()
		defer r.handles.mu.Unlock()
		if len(r.mirror.entries)+len(r.mirror.dirty)+len(r.handles.watched) > 0 {
			s.t.Errorf("%d nodes are followed, %d looks are due, %d records are watched", len(r.mirror.entries), len(r.mirror.dirty), len(r.handles.watched))
		}
	})
	return r
}

// make is openAt, and the caller must close the Registry.
func (s *store) make(addr string, grace time.Duration, change func(*Options)) *Registry {
	s.t.Helper()
	opt := Options{
		Servers: []string{addr}, Chroot: s.chroot, SessionTimeout: 2 * time.Minute, Protocols: registry.Protocols{"dubbo", "grpc"},
		Registers: map[string]Scheme{"dubbo": {"dubbo", "hessian2"}, "http": {"tri", ""}},
	}
	as(Service{})(&opt)
	if change != nil {
		change(&opt)
	}
	r, err := newRegistry(opt, grace)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// as makes all names of services mean one service of Dubbo, whose scheme is dubbo unless it has another one.
func as(of Service) func(*Options) {
	if of.Scheme = cmp.Or(of.Scheme, "dubbo"); of.Scheme == "dubbo" {
		of.Protocol = "dubbo"
	}
	return func(o *Options) { o.Service = func(string) Service { return of } }
}

// brief sets a short session, for a test that waits for its end.
func brief(o *Options) { o.SessionTimeout = time.Second }

func waitState(t *testing.T, h registry.Handle, want registry.State) {
	t.Helper()
	eventually.True(t, "state "+want.String(), func() bool { return h.State() == want })
}

// said keeps what is logged.
type said struct{ syncbuffer.Buffer }

func (s *said) count(text string) int { return strings.Count(s.String(), text) }

func logTo(s *said) func(*Options) {
	return func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(s, nil)) }
}

func all(changes ...func(*Options)) func(*Options) {
	return func(o *Options) {
		for _, c := range changes {
			c(o)
		}
	}
}
