package steal

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// A Watcher is a process of its own that watches.
type Watcher struct {
	cmd    *exec.Cmd
	stdin  io.Closer // whose end ends the process
	stderr bytes.Buffer
	stops  []Stop
	read   chan error // gets what collect returns
}

// maxStops bounds what a Watcher keeps; past it the measurement is worthless
// anyhow.
const maxStops = 1 << 20

// Start runs argv, a program that calls Print, and returns once that watches all
// processors; if it can't, that is the error.
func Start(argv ...string) (*Watcher, error) {
	w := &Watcher{cmd: exec.Command(argv[0], argv[1:]...), read: make(chan error, 1)}
	w.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", 2*runtime.NumCPU()))
	w.cmd.Stderr = &w.stderr
	stdin, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.stdin = stdin
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	begun := make(chan struct{})
	go func() {
		err := w.collect(stdout, begun)
		_ = stdout.Close() // what is not read would keep the process from ending
		w.read <- err
	}()
	select {
	case <-begun:
		return w, nil
	case err := <-w.read:
		w.read <- cmp.Or(err, errors.New("steal: the process ended before it watched"))
		_, err = w.Stop()
		return nil, err
	}
}

// collect reads what Print writes, and closes begun behind the first line.
func (w *Watcher) collect(from io.Reader, begun chan<- struct{}) error {
	lines := bufio.NewScanner(from)
	if lines.Scan() {
		if lines.Text() != watching {
			return fmt.Errorf("steal: first line %q", lines.Bytes())
		}
		close(begun)
	}
	for lines.Scan() {
		var s Stop
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("steal: line %q: %w", lines.Bytes(), err)
		}
		if len(w.stops) == maxStops {
			return fmt.Errorf("steal: more than %d stops", maxStops)
		}
		w.stops = append(w.stops, s)
	}
	return lines.Err()
}

// Stop ends the process and returns what it saw, in the order of ends.
func (w *Watcher) Stop() ([]Stop, error) {
	w.stdin.Close()
	err := <-w.read
	if werr := w.cmd.Wait(); werr != nil {
		err = errors.Join(err, fmt.Errorf("steal: %w: %s", werr, bytes.TrimSpace(w.stderr.Bytes())))
	}
	return w.stops, err
}

// watching is the first line of Print.
const watching = `{"watching":true}`

// Print is the process of a Watcher: it writes a line once it watches all processors,
// and each Stop to out as a line of JSON until in ends. Processors are asked once a
// period.
func Print(ctx context.Context, period time.Duration, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var failed error
	told := func(err error) {
		if failed = errors.Join(failed, err); failed != nil {
			cancel()
		}
	}
	enc := json.NewEncoder(out)
	err := Watch(ctx, period,
		func() { _, err := fmt.Fprintln(out, watching); told(err) },
		func(s Stop) { told(enc.Encode(s)) })
	return errors.Join(err, failed)
}
