// Package steal finds the moments in which a processor of this machine stood still. Either the
// host of a virtual machine ran something else (top calls that steal), or the kernel kept the
// processor to itself. A latency across such a moment says little about the program measured.
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

// Period is the default between two probes of a processor. One costs a virtual machine 45 µs.
const Period = 2 * time.Millisecond

type greeting struct {
	Watching bool `json:"watching"`
}

// Watch runs do while argv, a program that calls Print, watches the processors. It returns the
// stops in the order of their ends, and the errors of both. Print has its own process: threads
// with real-time priority that wake often would disturb the goroutines of this one.
func Watch(do func() error, argv ...string) (stops []Stop, err error) {
	watcher := exec.Command(argv[0], argv[1:]...)
	// Each watching thread holds one of Go's processors.
	watcher.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", 2*runtime.NumCPU()))
	var stderr bytes.Buffer
	watcher.Stderr = &stderr
	stdin, inErr := watcher.StdinPipe()
	stdout, outErr := watcher.StdoutPipe()
	if err := cmp.Or(inErr, outErr); err != nil {
		return nil, err
	}
	if err := watcher.Start(); err != nil {
		return nil, err
	}
	lines := json.NewDecoder(stdout)
	var first greeting
	read := make(chan error, 1)
	if lines.Decode(&first) == nil && first.Watching {
		go func() {
			var s Stop
			err := lines.Decode(&s)
			for ; err == nil; err = lines.Decode(&s) {
				stops = append(stops, s)
			}
			stdout.Close() // a child that writes on must not block
			read <- err
		}()
		err = do()
	} else {
		stdout.Close()
		read <- fmt.Errorf("%s does not watch the processors", argv[0])
	}
	stdin.Close() // ends the child
	if failed := <-read; failed != io.EOF {
		err = errors.Join(err, fmt.Errorf("steal: output of the watcher: %w", failed))
	}
	if ended := watcher.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("steal: %w: %s", ended, bytes.TrimSpace(stderr.Bytes())))
	}
	return stops, err
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

const margin = 5 * time.Millisecond

// Disturbed returns a function that reports whether a request was disturbed: due in a stop, up
// to margin before it, or after it for margin or the length of the stop. A machine that is half
// busy needs that long to work off its queues.
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
