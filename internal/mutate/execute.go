package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// limits are how long a command may compute, and last.
type limits struct{ cpu, wall time.Duration }

// What tests may take with a change. A busy machine must not look like a fault: what computes for ever ends by the time that it computes,
// and only what hangs ends by the clock.
const (
	most      = 5 // times what they take without a change, and at least
	leastCPU  = 10 * time.Second
	leastWall = 2 * time.Minute
	mostAlone = 10 * time.Minute // for what is compiled, and for a test whose time is not known
)

// limited runs a command with so many seconds of processor time, and at most 8 GiB of memory that it may write: a change may allocate
// for ever. Addresses alone are not limited: an etcd maps 10 GiB of its file.
const limited = `ulimit -d 8388608; ulimit -t "$1"; shift; exec "$@"`

// ended is what is left of a command.
type ended struct {
	passed    bool // the status was 0, within the limits
	output    []byte
	cpu, wall time.Duration
}

// execute runs a command in a folder, with variables in its environment. All processes that the command starts end with it.
func execute(ctx context.Context, folder string, l limits, variables []string, args ...string) (*ended, error) {
	temp, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	within, stop := context.WithTimeout(ctx, l.wall)
	defer stop()
	cmd := exec.CommandContext(within, "sh", append([]string{"-c", limited, "sh", fmt.Sprint(int(l.cpu.Seconds()))}, args...)...)
	cmd.Dir, cmd.Env = folder, append(append(os.Environ(), "TMPDIR="+temp), variables...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	begin := time.Now()
	output, err := cmd.CombinedOutput()
	if cmd.Process == nil || ctx.Err() != nil {
		return nil, err
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	e := &ended{passed: err == nil, output: output, wall: time.Since(begin)}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && within.Err() == nil {
		return nil, err
	}
	e.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return e, nil
}
