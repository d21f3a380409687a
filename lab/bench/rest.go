package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"syscall"
	"time"
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

// run measures a row that was just started.
func (r Rest) run(ctx context.Context, s *Stack) (Sample, error) {
	sample := Sample{Row: s.row.Name, Load: AtRest, Requests: int64(r.Connections)}
	before, err := s.Meter.after(ctx, settle)
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
		Connection: float64(busy.RSS-after.RSS) / 1024 / float64(r.Connections),
	}
	if s.row.sidecars() {
		waiting, err := waitingRSS(ctx, s.Tools[Remora])
		if err != nil {
			return sample, err
		}
		sample.Figures[OwnRSS] = mebibytes(after.RSS - waiting)
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

// connections go to one proxy. Who made them closes them, also after an error.
type connections []net.Conn

// connect opens n connections to addr. With used, it makes a request on each before it opens
// the next one: a proxy takes more memory for requests that come together.
func connect(ctx context.Context, addr string, n int, used bool) (all connections, err error) {
	dialer := net.Dialer{Timeout: requestTimeout}
	for range n {
		c, err := dialer.DialContext(ctx, "tcp", addr)
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

// waitingRSS is the resident memory of the sidecar's program before it has done anything:
// it waits for its configuration, which it reads from a pipe.
func waitingRSS(ctx context.Context, remora string) (int64, error) {
	waiting := exec.CommandContext(ctx, remora, "check", "-c", "/dev/stdin")
	pipe, err := waiting.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := waiting.Start(); err != nil {
		return 0, err
	}
	defer waiting.Wait() // it rejects the configuration, which is empty
	defer pipe.Close()
	u, err := Meter{waiting.Process.Pid}.after(ctx, settle)
	return u.RSS, err
}

// otherDescriptors is how many descriptors a process needs beside its idle connections.
const otherDescriptors = 1000

// raiseDescriptors lets this process and its children open as many files as the system
// allows. It returns n, or the number of connections that this allows if it is smaller.
func raiseDescriptors(n int) (int, error) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err == nil {
		limit.Cur = limit.Max
		// Go has raised the limit already, but children get that only if it is set here.
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
	if err != nil {
		return 0, fmt.Errorf("bench: limit of descriptors: %w", err)
	}
	if limit.Max < otherDescriptors {
		return 0, errors.New("bench: too few descriptors")
	}
	return int(min(uint64(n), limit.Max-otherDescriptors)), nil
}
