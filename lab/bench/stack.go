package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/lab/child"
)

// computePath is the path of all requests.
const computePath = "/compute"

// Stack is a row as processes of this machine: its replicas and its proxies.
type Stack struct {
	URL   string // the target of the load
	Addr  string // host and port of URL
	Tools Tools
	Meter Meter // of the proxies

	row    Row
	seed   uint64 // of the replicas
	dir    string
	procs  *child.Group
	first  Meter    // of the proxy that the load calls; empty if there is none
	peers  []string // addresses of the replicas
	shared *shared

	replicas, sidecars []int    // process ids, of sidecars the consumer's first
	admins             []string // addresses of the sidecars' admin APIs, in the same order
}

// errReplica says that a replica does not start: then no row can be measured.
var errReplica = errors.New("no replica")

// Start starts a row, and returns once a request through it got a response. The caller
// stops it. The seed is that of the replicas.
func Start(ctx context.Context, t Tools, row Row, seed uint64) (*Stack, error) {
	dir, err := os.MkdirTemp("", "remora-bench-")
	if err != nil {
		return nil, err
	}
	s := &Stack{Tools: t, row: row, seed: seed, dir: dir, procs: &child.Group{Dir: dir}, shared: &shared{dir: dir}}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("bench: row %s: %w", row.Name, err)
	}
	return s, nil
}

// start starts the replicas, then each level of the chain before the next one towards the load.
func (s *Stack) start(ctx context.Context) error {
	width, levels := max(1, s.row.replicas.count), len(s.row.chain)
	addrs, err := freeport.Loopback(width * (2*levels + 1))
	if err != nil {
		return err
	}
	take := func(n int) (some []string) {
		some, addrs = addrs[:n], addrs[n:]
		return some
	}
	var front *child.Process
	s.peers = take(width)
	for i, addr := range s.peers {
		if front, err = s.replica(ctx, i, addr); err != nil {
			return fmt.Errorf("%w: %w", errReplica, err)
		}
		s.replicas = append(s.replicas, front.PID())
	}
	upstreams := s.peers
	for level := levels - 1; level >= 0; level-- {
		listen := take(width)
		if level == 0 {
			listen = listen[:1]
		}
		for i, addr := range listen {
			place := place{Listen: addr, Upstreams: upstreams, Admin: take(1)[0], shared: s.shared}
			if len(listen) == len(upstreams) {
				place.Upstreams = upstreams[i : i+1]
			}
			if place.Upstreams, err = s.alias(level, &place); err != nil {
				return err
			}
			if front, err = s.proxy(ctx, level, i, place); err != nil {
				return err
			}
		}
		upstreams = listen
	}
	s.Addr, s.URL = upstreams[0], "http://"+upstreams[0]+computePath
	err = child.Await(ctx, front, "a response", func(ctx context.Context) error {
		if s.row.script == "" {
			_, err := child.Call(ctx, http.MethodPost, s.URL)
			return err
		}
		return postForm(ctx, s.URL)
	})
	return errors.Join(err, s.procs.Check())
}

// postForm makes a request as form.lua does.
func postForm(ctx context.Context, to string) error {
	form := url.Values{"interface": {"com.example.Hello"}, "method": {"hash"}, "parameterTypesString": {"Ljava/lang/String;"}, "parameter": {"a"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// alias lets the second proxy of a row with aliases listen on all addresses. It returns the
// upstreams of a proxy.
func (s *Stack) alias(level int, p *place) ([]string, error) {
	if s.row.aliases == 0 || level > 1 {
		return p.Upstreams, nil
	}
	if level == 1 {
		port, err := port(p.Listen)
		p.Listen = net.JoinHostPort("0.0.0.0", port)
		return p.Upstreams, err
	}
	port, err := port(p.Upstreams[0])
	var all []string
	for i := range s.row.aliases {
		all = append(all, net.JoinHostPort(fmt.Sprintf("127.0.1.%d", i+1), port))
	}
	return all, err
}

// maxAliases is how many addresses alias can make.
const maxAliases = 250

// replica starts what serves the requests. A fast replica may be the program backend,
// which takes less of the machine than the lab's.
func (s *Stack) replica(ctx context.Context, i int, addr string) (*child.Process, error) {
	path, args := s.Tools[Backend], []string(nil)
	if path == "" || s.row.replicas.args != nil {
		path = s.Tools[Lab]
		args = append([]string{"replica", "--mode", "fast", "--name", fmt.Sprintf("replica-%d", i+1),
			"--seed", strconv.FormatUint(s.seed+uint64(i)+1, 10), "--listen", addr}, s.row.replicas.args...)
	}
	return s.spawn(ctx, fmt.Sprintf("replica-%d", i+1), addr, []string{"GOMAXPROCS=1", "ADDR=" + addr}, path, args)
}

// proxy starts the i-th proxy of a level of the chain.
func (s *Stack) proxy(ctx context.Context, level, i int, p place) (*child.Process, error) {
	hop := s.row.chain[level]
	name := fmt.Sprintf("%s-%d-%d", hop.program, level+1, i+1)
	p.Dir = filepath.Join(s.dir, name)
	if err := os.Mkdir(p.Dir, 0o755); err != nil {
		return nil, err
	}
	args, err := hop.args(p)
	if err != nil {
		return nil, err
	}
	process, err := s.spawn(ctx, name, p.Listen, s.row.env, s.Tools[hop.program], args)
	if err != nil {
		return nil, err
	}
	s.Meter, s.first = append(s.Meter, process.PID()), Meter{process.PID()}
	if hop.sidecar {
		s.sidecars = append([]int{process.PID()}, s.sidecars...)
		s.admins = append([]string{p.Admin}, s.admins...)
	}
	return process, nil
}

// spawn starts a process, and waits until it listens.
func (s *Stack) spawn(ctx context.Context, name, addr string, env []string, path string, args []string) (*child.Process, error) {
	p, err := s.procs.StartWith(env, name, path, args...)
	if err != nil {
		return nil, err
	}
	return p, child.Await(ctx, p, name, child.Listens(addr))
}

// Check returns an error if a process has ended.
func (s *Stack) Check() error { return s.procs.Check() }

// Stop ends all processes, and removes their files.
func (s *Stack) Stop() {
	s.procs.Stop()
	s.shared.close()
	os.RemoveAll(s.dir)
}

// collections returns how often the garbage collector has run in all sidecars. To ask
// costs a sidecar thousands of allocations, so it must not happen during a measurement.
func (s *Stack) collections(ctx context.Context) (sum float64, err error) {
	for _, admin := range s.admins {
		n, err := metric(ctx, admin, "go_gc_duration_seconds_count")
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// metric returns the sum of the series of a metric of a sidecar.
func metric(ctx context.Context, admin, name string) (sum float64, err error) {
	text, err := child.Call(ctx, http.MethodGet, "http://"+admin+"/metrics")
	if err != nil {
		return 0, err
	}
	lines := regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (\S+)$`).FindAllSubmatch(text, -1)
	if lines == nil {
		return 0, fmt.Errorf("GET /metrics: no %s", name)
	}
	for _, line := range lines {
		v, err := strconv.ParseFloat(string(line[1]), 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}
