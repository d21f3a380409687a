// Package child runs the processes of the lab. The output of each goes to a file, and the
// kernel ends them if the lab is killed.
package child

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Process is a child, with its output in a file of the working directory.
type Process struct {
	Name string
	cmd  *exec.Cmd
	log  string        // path of its output
	done chan struct{} // closed once it has ended
	err  error         // of its end; read after done
}

// grace is how long a child may take to end after SIGTERM before it is killed.
const grace = 5 * time.Second

// start runs path; env is added to the environment of this process.
func start(dir, name string, env []string, path string, args ...string) (*Process, error) {
	p := &Process{Name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	// Append: a process of the same name may have been there before.
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = attr()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// stop ends p and returns once it has ended.
func (p *Process) stop() {
	// The handle does not signal a process that has ended: its pid may belong to another
	// process by now.
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		kill(p.cmd.Process)
		<-p.done
	}
}

// failure returns why p ended, with the end of its log.
func (p *Process) failure() error {
	err := p.err
	if err == nil {
		err = errors.New("it ended")
	}
	return fmt.Errorf("%s: %w; its log %s ends:\n%s", p.Name, err, p.log, tail(p.log, 1500))
}

// tail returns the last n bytes of a file.
func tail(file string, n int) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-n):])
}

// Group is processes that are stopped together, in the reverse order of their start.
type Group struct {
	Dir   string // for their logs; it exists
	procs []*Process
}

// Start runs path. The name must be unique in Dir.
func (g *Group) Start(name, path string, args ...string) (*Process, error) {
	return g.StartWith(nil, name, path, args...)
}

// StartWith is Start with additions to the environment, as "NAME=value".
func (g *Group) StartWith(env []string, name, path string, args ...string) (*Process, error) {
	p, err := start(g.Dir, name, env, path, args...)
	if err == nil {
		g.procs = append(g.procs, p)
	}
	return p, err
}

// Stop stops all processes, and returns once they have ended. It may be called again.
func (g *Group) Stop() {
	for i := len(g.procs) - 1; i >= 0; i-- {
		g.procs[i].stop()
	}
	g.procs = nil
}

// Check returns an error if a process has ended.
func (g *Group) Check() error {
	for _, p := range g.procs {
		select {
		case <-p.done:
			return p.failure()
		default:
		}
	}
	return nil
}

// readyTimeout bounds the wait for a process to serve. etcd takes longest.
const readyTimeout = 30 * time.Second

// Await polls until try succeeds, p ends or 30 s have passed. The error says what was
// awaited.
func Await(ctx context.Context, p *Process, what string, try func(context.Context) error) error {
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
			return fmt.Errorf("waiting for %s: %w (last: %w); its log %s ends:\n%s",
				what, ctx.Err(), last, p.log, tail(p.log, 1500))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Listens returns a try for Await that succeeds if addr accepts connections.
func Listens(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			c.Close()
		}
		return err
	}
}

// Output runs a program until it or ctx ends, and returns its standard output.
func Output(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = attr()
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("%s: %w: %s%s", filepath.Base(path), err, out, exit.Stderr)
	}
	return out, err
}
