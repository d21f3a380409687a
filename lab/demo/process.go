package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A process is a child, with its output in a file of the working directory.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // its path
	done chan struct{} // closed once it has ended
	err  error         // of its end; read after done
}

// Grace is how long a child may take to end after SIGTERM before it is killed.
const grace = 5 * time.Second

func startProcess(dir, name, path string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	// Appended to: the same process is started again for each phase.
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("demo: start %s: %w", name, err)
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = childAttr()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("demo: start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop ends p and returns once it has ended.
func (p *process) stop() {
	// By its own handle: a process that has ended already is not signalled, so a
	// pid that the system gave to someone else meanwhile is safe.
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.cmd.Process.Kill()
		<-p.done
	}
}

// failure tells that p ended when it should not have, with the end of its log.
func (p *process) failure() error {
	err := p.err
	if err == nil {
		err = errors.New("it ended")
	}
	return fmt.Errorf("demo: %s: %w; its log %s ends:\n%s", p.name, err, p.log, tail(p.log, 1500))
}

// tail is the last n bytes of a file.
func tail(file string, n int) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-n):])
}

// A group is the processes of a phase, ended in the reverse order of their start.
type group struct {
	dir   string
	procs []*process
}

func (g *group) start(name, path string, args ...string) (*process, error) {
	p, err := startProcess(g.dir, name, path, args...)
	if err == nil {
		g.procs = append(g.procs, p)
	}
	return p, err
}

func (g *group) stop() {
	for i := len(g.procs) - 1; i >= 0; i-- {
		g.procs[i].stop()
	}
	g.procs = nil
}

// check returns the failure of a process that has ended, if there is one.
func (g *group) check() error {
	for _, p := range g.procs {
		select {
		case <-p.done:
			return p.failure()
		default:
		}
	}
	return nil
}

// readyTimeout bounds the wait for a process to serve; starting etcd takes
// longest.
const readyTimeout = 30 * time.Second

// await polls until try succeeds, p ends or the time is up.
func await(ctx context.Context, p *process, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var last error
	for {
		if last = try(ctx); last == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("demo: waiting for %s: %w (last: %w); its log %s ends:\n%s",
				what, ctx.Err(), last, p.log, tail(p.log, 1500))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// client is used for the few control calls, never for the load.
var client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// call makes a request and returns the body of a 2xx answer.
func call(ctx context.Context, method, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: status %d", method, url, resp.StatusCode)
	}
	return body, nil
}

// gets is a try for await: url answers 2xx.
func gets(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := call(ctx, http.MethodGet, url)
		return err
	}
}
