package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/load"
)

// computePath is the path of all requests.
const computePath = "/compute"

// Stack is a row as processes of this machine: its replicas and its proxies.
type Stack struct {
	URL   string // the target of the load
	Addr  string // host and port of URL
	Last  string // address of the proxy that calls the replicas; Addr if there is only one
	Tools Tools
	Meter Meter // of the proxies; the last one is called by the load

	row      Row
	cores    cores  // of the row
	seed     uint64 // of the replicas
	dir      string
	procs    *child.Group
	observer *observer // nil if no sidecar is observed
	cutter   *cutter   // before the second proxy; nil unless the row has one
	release  func()    // of the addresses; nil until there are some

	replicas, sidecars []process // the consumer's sidecar comes first
}

// process is a child with an address: of a sidecar, that of its admin API.
type process struct {
	*child.Process
	addr string
}

// errReplica says that a replica does not start: then no row can be measured.
var errReplica = errors.New("no replica")

// Start starts a row and makes a request through it. The caller stops it.
func Start(ctx context.Context, t Tools, row Row, seed uint64) (*Stack, error) {
	dir, err := os.MkdirTemp("", "remora-bench-")
	if err != nil {
		return nil, err
	}
	s := &Stack{Tools: t, row: row, seed: seed, dir: dir, procs: &child.Group{Dir: dir}}
	s.cores, err = row.divided()
	err = errors.Join(err, writeCertificates(dir, row.rsa), os.CopyFS(dir, wrkScripts))
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// start starts the replicas, then each level of the chain before the next one towards the load.
func (s *Stack) start(ctx context.Context) error {
	width, levels := max(1, s.row.replicas.count), len(s.row.chain)
	addrs, release, err := freeport.Loopback(width * (2*levels + 1))
	if err != nil {
		return err
	}
	s.release = release
	take := func(n int) (some []string) {
		some, addrs = addrs[:n], addrs[n:]
		return some
	}
	var front *child.Process
	upstreams := take(width)
	for i, addr := range upstreams {
		if s.row.replicas.unix {
			addr = "unix:" + filepath.Join(s.dir, fmt.Sprintf("replica-%d.sock", i+1))
			upstreams[i] = addr
		}
		if front, err = s.replica(ctx, i, addr); err != nil {
			return fmt.Errorf("%w: %w", errReplica, err)
		}
		s.replicas = append(s.replicas, process{front, addr})
	}
	for level := levels - 1; level >= 0; level-- {
		listen := take(width)
		if level == 0 {
			listen = listen[:1]
		}
		for i, addr := range listen {
			p := place{
				hop: s.row.chain[level], Shared: s.dir,
				Listen: addr, Upstreams: upstreams, Admin: take(1)[0], Idle: s.row.idle,
			}
			if len(listen) == len(upstreams) {
				p.Upstreams = upstreams[i : i+1]
			}
			if front, err = s.proxy(ctx, fmt.Sprintf("%s-%d-%d", p.program, level+1, i+1), p, s.cores.sidecars[level]); err != nil {
				return err
			}
		}
		if level == levels-1 {
			s.Last = listen[0]
		}
		upstreams = listen
		if s.row.cut && level == 1 {
			if s.cutter, err = newCutter(listen[0]); err != nil {
				return err
			}
			upstreams = []string{s.cutter.addr()}
		}
	}
	s.Addr, s.URL = upstreams[0], s.row.scheme()+upstreams[0]+computePath
	err = child.Await(ctx, front, "a response", s.try)
	return errors.Join(err, s.procs.Check())
}

// try makes a request.
func (s *Stack) try(ctx context.Context) (err error) {
	var r *Result
	switch {
	case s.row.grpc:
		r, err = unaryCalls(1).h2load(ctx, s, time.Second)
	case s.row.script != "":
		r, err = calls{}.wrk(ctx, s, 1, time.Second)
	case s.row.scheme() == "https://":
		r, err = s.runLab(ctx, load.Options{Targets: []string{s.URL}, Closed: true, Connections: 1, Duration: time.Millisecond})
	default:
		_, err := child.Call(ctx, http.MethodPost, s.URL)
		return err
	}
	if err == nil && (r.Errors > 0 || r.Requests == 0) {
		err = fmt.Errorf("%d of %d requests failed", r.Errors, r.Requests)
	}
	return err
}

func (s *Stack) replica(ctx context.Context, i int, addr string) (*child.Process, error) {
	name := fmt.Sprintf("replica-%d", i+1)
	args := append([]string{"replica", "--mode", "fast", "--name", name, "--listen", addr}, s.row.replicas.arguments(i, s.seed)...)
	if s.row.replicas.streams {
		args = []string{"streams", "--listen", addr}
	}
	program, args := s.Tools.pin(s.cores.replica, s.Tools[Lab], args)
	threads := fmt.Sprintf("GOMAXPROCS=%d", max(2, s.row.cores))
	return s.procs.StartServer(ctx, child.Listens(addr), []string{threads}, name, program, args...)
}

// proxy starts a proxy on some processors; on all without a list.
func (s *Stack) proxy(ctx context.Context, name string, p place, cpus []int) (_ *child.Process, err error) {
	p.Dir = filepath.Join(s.dir, name)
	if err := os.Mkdir(p.Dir, 0o755); err != nil {
		return nil, err
	}
	traced := p.Sidecar != nil && p.Sidecar.Observed
	if p.Scraped || traced {
		if s.observer == nil {
			if s.observer, err = newObserver(); err != nil {
				return nil, err
			}
		}
		s.observer.traced = s.observer.traced || traced
		p.Spans = s.observer.addr
		s.observer.scrape("http://" + p.Admin + metricsPath[p.program])
	}
	args, err := p.arguments()
	if err != nil {
		return nil, err
	}
	program, args := s.Tools.pin(cpus, s.Tools[p.program], args)
	started, err := s.procs.StartServer(ctx, child.Listens(p.Listen), s.row.env, name, program, args...)
	if err != nil {
		return nil, err
	}
	if !p.uncounted {
		s.Meter = append(s.Meter, started.PID())
	}
	if p.Sidecar != nil {
		s.sidecars = append([]process{{started, p.Admin}}, s.sidecars...)
	}
	return started, nil
}

// Stop ends all processes, and removes their files.
func (s *Stack) Stop() {
	s.procs.Stop()
	s.observer.close()
	s.cutter.close()
	if s.release != nil {
		s.release()
	}
	os.RemoveAll(s.dir)
}

// counters are the metrics of sidecars that become figures.
var counters = map[Figure]string{
	Collections: "go_gc_duration_seconds_count",
	Hedges:      `remora_hedges_total{result="sent",service="out"}`,
	HedgesWon:   `remora_hedges_total{result="won",service="out"}`,
}

// counts returns the sums of all sidecars since their start. To ask costs a sidecar thousands
// of allocations, so it must not happen during a measurement.
func (s *Stack) counts(ctx context.Context) (Figures, error) {
	sums := Figures{}
	for _, sidecar := range s.sidecars {
		text, err := sidecar.metrics(ctx)
		if err != nil {
			return nil, err
		}
		for figure, name := range counters {
			n, err := child.Metric(text, name)
			if err != nil {
				return nil, err
			}
			sums[figure] += n
		}
	}
	return sums, nil
}

// metricsPath is where a program has its metrics.
var metricsPath = map[Program]string{Remora: "/metrics", Envoy: "/stats/prometheus"}

func (p process) metrics(ctx context.Context) ([]byte, error) {
	return child.Call(ctx, http.MethodGet, "http://"+p.addr+metricsPath[Remora])
}
