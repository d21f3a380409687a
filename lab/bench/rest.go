package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/lab/child"
)

// AtRest stands for the name of a load in samples that are made without requests.
const AtRest = "at rest"

// Rest says how a row is measured without requests.
type Rest struct {
	Settle      time.Duration // from the start until a proxy is at rest
	Duration    time.Duration // without requests
	Connections int           // idle ones, each after one request; 0 means that nothing is measured at rest
	Asked       int           // idle ones, if the limit of descriptors allows no more than Connections
}

// settle is how long a process that was just busy needs to come to rest.
const settle = 2 * time.Second

// run measures a row that was just started.
func (r Rest) run(ctx context.Context, s *Stack) (Sample, error) {
	sample := Sample{Row: s.row.Name, Load: AtRest, Requests: int64(r.Connections)}
	start, err := s.startTime(ctx)
	if err != nil {
		return sample, err
	}
	before, err := s.Meter.after(ctx, r.Settle)
	if err != nil {
		return sample, err
	}
	after, err := s.Meter.after(ctx, r.Duration)
	if err != nil {
		return sample, err
	}
	idle, err := connect(ctx, s.Addr, r.Connections, true)
	defer idle.close()
	if err != nil {
		return sample, fmt.Errorf("connection that will be idle: %w", err)
	}
	busy, err := s.Meter.after(ctx, settle)
	if err != nil {
		return sample, err
	}
	if err := idle.request(); err != nil { // the proxy may have closed one
		return sample, fmt.Errorf("connection that was idle: %w", err)
	}
	sample.Figures = Figures{
		RestCPU:    1e3 * after.Since(before).CPU.Seconds() / r.Duration.Seconds(),
		RestRSS:    mebibytes(after.RSS),
		OwnRSS:     mebibytes(after.Own),
		Connection: float64(busy.Own-after.Own) / 1024 / float64(r.Connections),
		StartTime:  microseconds(start) / 1e3,
	}
	if s.row.sidecars() {
		program, err := os.Stat(s.Tools[Remora])
		if err != nil {
			return sample, err
		}
		sample.Figures[ProgramSize] = mebibytes(program.Size())
	}
	return sample, nil
}

// startPause is the time between two attempts to get a first response.
const startPause = time.Millisecond

// startTime starts the first proxy of the row once more, straight before the replica, and
// returns how long it takes to its first response.
func (s *Stack) startTime(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	addrs, release, err := freeport.Loopback(2)
	if err != nil {
		return 0, err
	}
	defer release()
	p := place{
		hop: s.row.chain[0], Dir: filepath.Join(s.dir, "start"), Shared: s.dir,
		Listen: addrs[0], Admin: addrs[1], Upstreams: []string{s.replicas[0].addr},
	}
	if err := os.Mkdir(p.Dir, 0o755); err != nil {
		return 0, err
	}
	args, err := p.arguments()
	if err != nil {
		return 0, err
	}
	procs := child.Group{Dir: p.Dir}
	defer procs.Stop()
	began := time.Now()
	if _, err := procs.Start(s.row.env, "start", s.Tools[p.program], args...); err != nil {
		return 0, err
	}
	for {
		first, err := connect(ctx, p.Listen, 1, true)
		took := time.Since(began)
		first.close()
		if err == nil {
			return took, nil
		}
		if stop := errors.Join(procs.Check(), sleep(ctx, startPause)); stop != nil {
			return 0, fmt.Errorf("start: %w (last: %w)", stop, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// connections go to one proxy. Who made them closes them, also after an error.
type connections []net.Conn

// connect opens n connections to addr. With used, it makes a request on each before it opens
// the next one: a proxy takes more memory for requests that come together.
func connect(ctx context.Context, addr string, n int, used bool) (all connections, err error) {
	for i := range n {
		c, err := dial(ctx, addr, i)
		if err != nil {
			return all, err
		}
		all = append(all, c)
		if used {
			if err := all[len(all)-1:].request(); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// sourceConnections is how many connections to one port come from one address. Linux has 28,232
// ports for them, by default.
const sourceConnections = 20_000

// dial opens the i-th connection to addr. Those beyond the ports of one address come from others.
func dial(ctx context.Context, addr string, i int) (net.Conn, error) {
	dialer := net.Dialer{Timeout: requestTimeout}
	if n := i / sourceConnections; n > 0 {
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+n))}
	}
	return dialer.DialContext(ctx, "tcp", addr)
}

// request makes one request on each connection. The responses must keep them alive.
func (all connections) request() error {
	for _, c := range all {
		c.SetDeadline(time.Now().Add(requestTimeout))
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\n{}", computePath, c.RemoteAddr())
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK || resp.Close {
			return fmt.Errorf("status %d, connection kept alive: %v", resp.StatusCode, !resp.Close)
		}
	}
	return nil
}

// close resets the connections: their ports are needed again.
func (all connections) close() {
	for _, c := range all {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// A sidecar reserves two descriptors for each connection that it accepts, and closes idle ones
// once 85% are in use. So ten connections take 25. It needs others, too.
const (
	descriptorsOfTen = 25
	otherDescriptors = 1000
)

// raiseDescriptors lets this process and its children open the files for n connections, or as
// many as the system allows. It returns n, or the number of connections that this allows if it
// is smaller.
func raiseDescriptors(n int) (int, error) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err == nil {
		wanted := alike(limit.Max, descriptorsOfTen*n/10+otherDescriptors)
		if limit.Max < wanted { // with CAP_SYS_RESOURCE
			_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: wanted, Max: wanted})
			err = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
		}
		limit.Cur = limit.Max
		// Go has raised the limit already, but children get that only if it is set here.
		err = errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
	if err != nil {
		return 0, fmt.Errorf("bench: limit of descriptors: %w", err)
	}
	if limit.Max < otherDescriptors {
		return 0, errors.New("bench: too few descriptors")
	}
	return min(n, int((limit.Max-otherDescriptors)/descriptorsOfTen*10)), nil
}

// alike returns n in the type of the first argument: limits are signed on some systems.
func alike[T int64 | uint64](_ T, n int) T { return T(n) }
