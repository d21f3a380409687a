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

	"github.com/remora-proxy/remora/lab/child"
)

// AtRest stands for the name of a load in samples that are made without requests.
const AtRest = "at rest"

// Rest says how a row is measured without requests.
type Rest struct {
	Duration    time.Duration // without requests
	Connections int           // idle ones, each after one request; 0 means that nothing is measured at rest
}

// settle is how long a process that was just busy needs to come to rest.
const settle = 2 * time.Second

// Run measures a row that was just started: what its proxies use while nothing happens, and
// the memory of idle connections.
func (r Rest) Run(ctx context.Context, s *Stack) (Sample, error) {
	sample := Sample{Row: s.row.Name, Load: AtRest, Requests: int64(r.Connections), Figures: Figures{}}
	if err := sleep(ctx, settle); err != nil {
		return sample, err
	}
	before, err := s.Meter.Usage()
	if err != nil {
		return sample, err
	}
	if err := sleep(ctx, r.Duration); err != nil {
		return sample, err
	}
	after, err := s.Meter.Usage()
	if err != nil {
		return sample, err
	}
	rss, err := s.Meter.RSS()
	if err != nil {
		return sample, err
	}
	more, err := r.busyRSS(ctx, s)
	if err != nil {
		return sample, err
	}
	sample.Figures[RestCPU] = 1e3 * after.Since(before).CPU.Seconds() / r.Duration.Seconds()
	sample.Figures[RestRSS] = mebibytes(rss)
	sample.Figures[Connection] = float64(more-rss) / 1024 / float64(r.Connections)
	if s.row.sidecars() {
		waiting, err := waitingRSS(ctx, s.Tools)
		if err != nil {
			return sample, err
		}
		sample.Figures[OwnRSS] = mebibytes(rss - waiting)
	}
	return sample, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// busyRSS is the resident memory with idle connections.
func (r Rest) busyRSS(ctx context.Context, s *Stack) (rss int64, err error) {
	conns, err := openIdle(ctx, s.Addr, r.Connections)
	defer closeAll(conns)
	if err != nil {
		return 0, err
	}
	if err := sleep(ctx, settle); err != nil {
		return 0, err
	}
	if rss, err = s.Meter.RSS(); err != nil {
		return 0, err
	}
	for _, c := range conns { // an error if the proxy has closed one
		if err := request(c); err != nil {
			return 0, fmt.Errorf("connection that was idle: %w", err)
		}
	}
	return rss, nil
}

// openIdle opens n connections to addr and makes a request on each. The caller closes them,
// also if there is an error.
func openIdle(ctx context.Context, addr string, n int) (conns []net.Conn, err error) {
	dialer := net.Dialer{Timeout: requestTimeout}
	for range n {
		c, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
		if err := request(c); err != nil {
			return conns, fmt.Errorf("connection that will be idle: %w", err)
		}
	}
	return conns, nil
}

// request makes one request. The response must keep the connection alive.
func request(c net.Conn) error {
	c.SetDeadline(time.Now().Add(requestTimeout))
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\n{}", computePath, c.RemoteAddr())
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || resp.Close) {
		err = fmt.Errorf("status %d, connection kept alive: %v", resp.StatusCode, !resp.Close)
	}
	return err
}

// closeAll resets the connections: their ports are needed again.
func closeAll(conns []net.Conn) {
	for _, c := range conns {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// waitingRSS is the resident memory of the sidecar's program before it has done anything:
// it waits for its configuration, which it reads from a pipe.
func waitingRSS(ctx context.Context, t Tools) (rss int64, err error) {
	dir, err := os.MkdirTemp("", "remora-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pipe.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return 0, fmt.Errorf("pipe: %w", err)
	}
	procs := &child.Group{Dir: dir}
	defer procs.Stop()
	p, err := procs.Start("waiting", t[Remora], "check", "-c", path)
	if err != nil {
		return 0, err
	}
	var pipe *os.File
	err = child.Await(ctx, p, "the sidecar to read its configuration", func(context.Context) error {
		// Without O_NONBLOCK it would block until the sidecar has opened the pipe.
		pipe, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer pipe.Close() // before Stop, because it ends the wait
	if err := sleep(ctx, settle); err != nil {
		return 0, err
	}
	return Meter{p.PID()}.RSS()
}

// otherDescriptors is how many descriptors a process needs beside its idle connections.
const otherDescriptors = 1000

// raiseDescriptors lets this process and its children open as many files as the system
// allows. It returns n, or the number of connections that this allows if it is smaller.
func raiseDescriptors(n int) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("bench: limit of descriptors: %w", err)
	}
	limit.Cur = limit.Max
	// Go has raised the limit of this process already, but its children would get the old
	// one: only a limit set here is theirs too.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("bench: limit of descriptors: %w", err)
	}
	if limit.Max < uint64(n+otherDescriptors) {
		n = int(limit.Max) - otherDescriptors
	}
	if n < 0 {
		return 0, errors.New("bench: too few descriptors")
	}
	return n, nil
}
