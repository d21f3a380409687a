// Package child runs the processes of the lab. The output of each goes to a file, or to where
// the lab's own goes, and the kernel ends them if the lab is killed.
package child

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/internal/unixaddr"
)

// Process is a child.
type Process struct {
	Name string
	cmd  *exec.Cmd
	log  string        // path of its output; "" if it is that of this process
	done chan struct{} // closed once it has ended
	err  error         // of its end; read after done
}

// grace is how long a child may take to end after SIGTERM before it is killed.
const grace = 5 * time.Second

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

func (p *Process) stop() {
	// The handle signals no process that has ended: its pid may be that of another one by now.
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		syscall.Kill(-p.PID(), syscall.SIGKILL) // and its descendants: attr made it their leader
		<-p.done
	}
}

// failure adds the end of p's log to what went wrong.
func (p *Process) failure(what error) error {
	if p.log == "" {
		return what
	}
	log, err := os.ReadFile(p.log)
	if err != nil {
		log = []byte(err.Error())
	}
	return fmt.Errorf("%w; its log %s ends:\n%s", what, p.log, log[max(0, len(log)-1500):])
}

// ended returns why p has ended, or nil if it has not.
func (p *Process) ended() error {
	select {
	case <-p.done:
		return p.failure(fmt.Errorf("%s: %w", p.Name, cmp.Or(p.err, errors.New("it ended"))))
	default:
		return nil
	}
}

// Group is processes that are stopped together, in the reverse order of their start.
type Group struct {
	Dir   string // for their logs; it exists. "" means that they write where this process does.
	procs []*Process
}

// Start runs path, with additions to the environment as "NAME=value". The name must be unique
// among the processes that run in Dir.
func (g *Group) Start(env []string, name, path string, args ...string) (*Process, error) {
	p := &Process{Name: name, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = os.Stdout, os.Stderr
	if g.Dir != "" {
		p.log = filepath.Join(g.Dir, name+".log")
		// Append: a process of the same name may have been there before.
		log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		defer log.Close()
		p.cmd.Stdout, p.cmd.Stderr = log, log
	}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = attr()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	g.procs = append(g.procs, p)
	return p, nil
}

// StartServer is Start, and returns once ready succeeds, see Await.
func (g *Group) StartServer(ctx context.Context, ready func(context.Context) error, env []string,
	name, path string, args ...string) (*Process, error) {
	p, err := g.Start(env, name, path, args...)
	if err == nil {
		err = Await(ctx, p, name, ready)
	}
	return p, err
}

// Stop stops all processes, and returns once they have ended. It may be called again.
func (g *Group) Stop() {
	for _, p := range slices.Backward(g.procs) {
		p.stop()
	}
	g.procs = nil
}

// Check returns an error if a process has ended.
func (g *Group) Check() error {
	for _, p := range g.procs {
		if err := p.ended(); err != nil {
			return err
		}
	}
	return nil
}

// Wait returns nil once ctx ends, or an error once one of the processes has ended.
func (g *Group) Wait(ctx context.Context) error {
	ended := make(chan *Process, len(g.procs))
	for _, p := range g.procs {
		go func() {
			<-p.done
			ended <- p
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case p := <-ended:
		return p.ended()
	}
}

// readyTimeout bounds the wait for a process to serve, on a busy machine. etcd takes longest.
const readyTimeout = 2 * time.Minute

// Await polls until try succeeds, p ends or two minutes have passed. The error says what was awaited.
func Await(ctx context.Context, p *Process, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		last := try(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.ended()
		case <-ctx.Done():
			return p.failure(fmt.Errorf("waiting for %s: %w (last: %w)", what, ctx.Err(), last))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Listens returns a try for Await that succeeds if addr accepts connections.
func Listens(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		var d net.Dialer
		network, address := unixaddr.Split(addr)
		c, err := d.DialContext(ctx, network, address)
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
