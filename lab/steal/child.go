package steal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
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

// Start runs argv, a program that calls Print. Whether that can watch is Stop's to
// tell.
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
	go func() {
		err := w.collect(stdout)
		_ = stdout.Close() // what is not read would keep the process from ending
		w.read <- err
	}()
	return w, nil
}

func (w *Watcher) collect(from io.Reader) error {
	lines := bufio.NewScanner(from)
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

// Print is the process of a Watcher: it writes each Stop to out as a line of JSON
// until in ends.
func Print(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var failed error
	enc := json.NewEncoder(out)
	err := Watch(ctx, func(s Stop) {
		if failed = enc.Encode(s); failed != nil {
			cancel()
		}
	})
	return errors.Join(err, failed)
}
