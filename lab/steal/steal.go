// Package steal finds the moments in which a processor of this machine stood still.
// Either the host of a virtual machine ran something else (top calls that steal), or
// the kernel kept the processor to itself. A latency measured across such a moment
// says little about the program that was measured.
package steal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sort"
	"time"
)

// Stop is a time in which a processor ran no program, not even one of the highest priority.
type Stop struct {
	CPU  int       `json:"cpu"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Least is the shortest Stop that is reported. A stop of Least and a period is never missed.
const Least = time.Millisecond

// Period is the default time between two probes of a processor. A probe costs a virtual
// machine some 45 µs.
const Period = 2 * time.Millisecond

// Watcher is a child process that calls Print. Its threads have real-time priority and wake
// often, which would disturb the goroutines of the process that measures.
type Watcher struct {
	cmd    *exec.Cmd
	stdin  io.Closer // the child ends when this is closed
	stderr bytes.Buffer
	stops  []Stop
	read   chan error // gets one error or nil once stdout has been read
}

type greeting struct {
	Watching bool `json:"watching"`
}

// Start runs argv, a program that calls Print. It returns once all processors are watched.
func Start(argv ...string) (*Watcher, error) {
	w := &Watcher{cmd: exec.Command(argv[0], argv[1:]...), read: make(chan error, 1)}
	// Each watching thread holds one of Go's processors.
	w.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", 2*runtime.NumCPU()))
	w.cmd.Stderr = &w.stderr
	stdin, inErr := w.cmd.StdinPipe()
	stdout, outErr := w.cmd.StdoutPipe()
	if err := cmp.Or(inErr, outErr); err != nil {
		return nil, err
	}
	w.stdin = stdin
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	lines := json.NewDecoder(stdout)
	var first greeting
	if err := lines.Decode(&first); err != nil || !first.Watching {
		stdout.Close()
		w.read <- fmt.Errorf("steal: %s does not watch the processors", argv[0])
		_, err := w.Stop()
		return nil, err
	}
	go func() {
		defer stdout.Close() // a child that writes on must not block
		for {
			var s Stop
			if err := lines.Decode(&s); err == io.EOF {
				w.read <- nil
				return
			} else if err != nil {
				w.read <- fmt.Errorf("steal: output of the watcher: %w", err)
				return
			}
			w.stops = append(w.stops, s)
		}
	}()
	return w, nil
}

// Stop ends the child and returns what it found, in the order of ends.
func (w *Watcher) Stop() ([]Stop, error) {
	w.stdin.Close()
	err := <-w.read
	if ended := w.cmd.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("steal: %w: %s", ended, bytes.TrimSpace(w.stderr.Bytes())))
	}
	return w.stops, err
}

// merge returns the times in which any processor stood still, sorted and without overlap.
func merge(stops []Stop) (merged []Stop) {
	for _, s := range slices.SortedFunc(slices.Values(stops), func(a, b Stop) int { return a.From.Compare(b.From) }) {
		last := len(merged) - 1
		if last < 0 || merged[last].To.Before(s.From) {
			merged = append(merged, s)
		} else if merged[last].To.Before(s.To) {
			merged[last].To = s.To
		}
	}
	return merged
}

// Total is how long any processor stood still between two times.
func Total(stops []Stop, from, to time.Time) (sum time.Duration) {
	for _, s := range merge(stops) {
		outside := max(0, from.Sub(s.From)) + max(0, s.To.Sub(to))
		sum += max(0, s.To.Sub(s.From)-outside)
	}
	return sum
}

// margin is the least distance from a stop at which a request counts as undisturbed.
const margin = 5 * time.Millisecond

// Disturbed returns a function that reports whether a request due at a time was disturbed:
// due in a stop, up to 5 ms before it, or after it for 5 ms or the length of the stop. A
// machine that is half busy needs that long to work off its queues.
func Disturbed(stops []Stop) func(due time.Time) bool {
	wide := make([]Stop, 0, len(stops))
	for _, s := range stops {
		wide = append(wide, Stop{From: s.From.Add(-margin), To: s.To.Add(max(margin, s.To.Sub(s.From)))})
	}
	wide = merge(wide)
	return func(due time.Time) bool {
		next := sort.Search(len(wide), func(i int) bool { return !wide[i].To.Before(due) })
		return next < len(wide) && !due.Before(wide[next].From)
	}
}
