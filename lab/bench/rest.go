package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/lab/child"
)

// AtRest is the name, in the place of a load's, of what is measured without requests.
const AtRest = "at rest"

// Rest is how a row is measured without requests.
type Rest struct {
	Duration    time.Duration // for which nothing is sent
	Connections int           // kept alive then, each after one request
}

// Run measures a row that was just started: what its proxies take while nothing
// happens, and what more when connections are kept alive.
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
	sample.Figures[RestCPU] = 1e3 * after.Since(before).CPU.Seconds() / r.Duration.Seconds()
	rss, err := s.Meter.RSS()
	if err != nil {
		return sample, err
	}
	sample.Figures[RestRSS] = mebibytes(rss)
	more, err := r.held(ctx, s)
	if err != nil {
		return sample, err
	}
	sample.Figures[Connection] = float64(more-rss) / 1024 / float64(r.Connections)
	return sample, nil
}

// held is the resident memory while connections are held.
func (r Rest) held(ctx context.Context, s *Stack) (rss int64, err error) {
	crowd, err := gather(ctx, s.Addr, r.Connections)
	defer crowd.leave()
	if err != nil {
		return 0, err
	}
	if err := sleep(ctx, settle); err != nil {
		return 0, err
	}
	if rss, err = s.Meter.RSS(); err != nil {
		return 0, err
	}
	return rss, crowd.check()
}

// settle is how long a process that was just busy has to come to rest.
const settle = 2 * time.Second

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// waitingRSS is the resident memory of the sidecar's program, with all that is linked
// into it, before it has done anything: it waits for its configuration, which it is
// to read from a pipe.
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
	// Opening it to write ends when the sidecar has opened it to read.
	pipe, err := openFor(ctx, p, path)
	if err != nil {
		return 0, err
	}
	defer pipe.Close() // before Stop: it ends the wait
	if err := sleep(ctx, settle); err != nil {
		return 0, err
	}
	return Meter{p.PID()}.RSS()
}

// openFor opens a pipe to write once p has opened it to read.
func openFor(ctx context.Context, p *child.Process, path string) (pipe *os.File, err error) {
	err = child.Await(ctx, p, "the sidecar to read its configuration", func(context.Context) error {
		pipe, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err
	})
	return pipe, err
}

// descriptors that a process needs beside its idle connections.
const otherDescriptors = 1000

// raiseDescriptors lets this process, and those that it starts, open as many files as
// the system allows, and returns how many connections that leaves for n that are wished for.
func raiseDescriptors(n int) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("bench: limit of descriptors: %w", err)
	}
	limit.Cur = limit.Max
	// Set even if it is that high already, as Go sees to at the start of this process:
	// what it starts would have the limit of before.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("bench: limit of descriptors: %w", err)
	}
	if limit.Max < uint64(n+otherDescriptors) {
		n = int(limit.Max) - otherDescriptors
	}
	if n < 0 {
		return 0, fmt.Errorf("bench: %d descriptors are too few", limit.Max)
	}
	return n, nil
}
