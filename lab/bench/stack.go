package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/lab/child"
)

// computePath is where requests go.
const computePath = "/compute"

// A Stack is a row as processes of this machine: the replica, and its proxies.
type Stack struct {
	URL   string // where the load goes
	Addr  string // of it
	Tools Tools
	Meter Meter // of the proxies

	backend string // address of the replica

	row    Row
	dir    string
	procs  *child.Group
	admins []string // addresses of the sidecars' admin APIs
	shared *shared
}

// errReplica is that the replica does not start: then no row can be measured.
var errReplica = errors.New("no replica")

// Start starts a row, and returns once a request has been answered through it. The
// caller stops it.
func Start(ctx context.Context, t Tools, row Row) (*Stack, error) {
	dir, err := os.MkdirTemp("", "remora-bench-")
	if err != nil {
		return nil, err
	}
	s := &Stack{Tools: t, row: row, dir: dir, procs: &child.Group{Dir: dir}, shared: &shared{dir: dir}}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("bench: row %s: %w", row.Name, err)
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	n := len(s.row.chain)
	addrs, err := freeport.Loopback(2*n + 1)
	if err != nil {
		return err
	}
	way, admins := addrs[:n+1], addrs[n+1:] // each proxy listens, the replica last
	s.Addr, s.URL, s.backend = way[0], "http://"+way[0]+computePath, way[n]
	front, err := s.replica(ctx, way[n])
	if err != nil {
		return fmt.Errorf("%w: %w", errReplica, err)
	}
	for i := n - 1; i >= 0 && err == nil; i-- {
		front, err = s.proxy(ctx, i, way[i], way[i+1], admins[i])
	}
	if err != nil {
		return err
	}
	err = child.Await(ctx, front, "an answer", func(ctx context.Context) error {
		_, err := child.Call(ctx, http.MethodPost, s.URL)
		return err
	})
	return errors.Join(err, s.procs.Check())
}

// replica starts what answers all requests: a program of its own if there is one,
// for it takes less of the machine than the lab.
func (s *Stack) replica(ctx context.Context, addr string) (*child.Process, error) {
	path, args := s.Tools[Backend], []string(nil)
	if path == "" || s.row.size != (size{}) { // it is to count its requests, and may have many addresses
		path, args = s.Tools[Lab], []string{"replica", "--mode", "fast"}
		if s.row.size.endpoints > 1 {
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			args = append(args, "--device", "lo", "--listen", "0.0.0.0:"+port)
		} else {
			args = append(args, "--listen", addr)
		}
	}
	return s.spawn(ctx, "replica", addr, []string{"GOMAXPROCS=1", "ADDR=" + addr}, path, args)
}

// proxy starts the i-th of the chain.
func (s *Stack) proxy(ctx context.Context, i int, listen, upstream, admin string) (*child.Process, error) {
	hop := s.row.chain[i]
	name := fmt.Sprintf("%s-%d", hop.program, i+1)
	place := place{
		Dir: filepath.Join(s.dir, name), Listen: listen, Upstream: upstream, Admin: admin,
		hop: i, size: s.row.size, shared: s.shared,
	}
	if err := os.Mkdir(place.Dir, 0o755); err != nil {
		return nil, err
	}
	args, err := hop.args(place)
	if err != nil {
		return nil, err
	}
	p, err := s.spawn(ctx, name, listen, s.row.env, s.Tools[hop.program], args)
	if err != nil {
		return nil, err
	}
	s.Meter = append(s.Meter, p.PID())
	if hop.sidecar && s.row.size == (size{}) { // a scrape of a thousand routes takes memory of its own
		s.admins = append(s.admins, admin)
	}
	return p, nil
}

// spawn starts a process, and waits until it listens.
func (s *Stack) spawn(ctx context.Context, name, addr string, env []string, path string, args []string) (*child.Process, error) {
	p, err := s.procs.StartWith(env, name, path, args...)
	if err != nil {
		return nil, err
	}
	return p, child.Await(ctx, p, name, child.Listens(addr))
}

// Check returns the failure of a process that has ended, if there is one.
func (s *Stack) Check() error { return s.procs.Check() }

// Stop ends all processes, and removes their files.
func (s *Stack) Stop() {
	s.procs.Stop()
	s.shared.close()
	os.RemoveAll(s.dir)
}

// observed tells whether who observes the row saw anything of it.
func (s *Stack) observed() error {
	if s.shared.observer == nil {
		return nil
	}
	return s.shared.observer.check()
}
