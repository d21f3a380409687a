package accesslog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/racetest"
)

const timeout = time.Minute

func TestMain(m *testing.M) { leaktest.Main(m) }

// disk is a file whose writes the test controls.
type disk struct {
	mu      sync.Mutex
	written []byte
	room    int // bytes until the disk is full
	closed  bool

	begun    chan struct{} // gets a value at each write; nil if writes need not wait
	released chan struct{} // lets the write go on
	ended    chan struct{} // is closed with the file; nil if nobody waits
}

var errFull = errors.New("no space left")

func (d *disk) Write(b []byte) (int, error) {
	if d.begun != nil {
		d.begun <- struct{}{}
		<-d.released
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(b), d.room)
	d.written = append(d.written, b[:n]...)
	d.room -= n
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

func (d *disk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.ended != nil {
		close(d.ended)
	}
	return nil
}

func (d *disk) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.written)
}

// grow frees n bytes on the disk.
func (d *disk) grow(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room += n
}

// recorder is a Logger that keeps its lines.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Warn(msg string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprint(append([]any{msg}, args...)...))
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lines)
}

func finish(t *testing.T, w *Writer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// awaitFree waits until the given number of batches are free: the Writer has then
// written all others.
func awaitFree(t *testing.T, q *Queue, free int) {
	t.Helper()
	var all []*batch
	end := time.After(timeout)
	for range free {
		select {
		case b := <-q.free:
			all = append(all, b)
		case <-end:
			t.Fatalf("%d batches are free, want %d", len(all), free)
		}
	}
	for _, b := range all {
		q.free <- b
	}
}

func numbered(i int) *Record { return &Record{Request: Request{Path: fmt.Appendf(nil, "/%d", i)}} }

// paths returns the path of each line of text. Each line must be a JSON object.
func paths(t *testing.T, text string) (all []string) {
	t.Helper()
	for _, line := range strings.SplitAfter(text, "\n") {
		if line == "" {
			continue
		}
		var v struct{ Path string }
		if err := json.Unmarshal([]byte(line), &v); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("invalid line: %q, %v", line, err)
		}
		all = append(all, v.Path)
	}
	return all
}

// TestOrder: the lines of a loop are written in order, over many batches, and none
// is lost.
func TestOrder(t *testing.T) {
	d := &disk{room: 1 << 30}
	counts := &Counts{}
	q := NewQueue(1<<20, 1, counts)
	w := start("test", &output{d}, q, &recorder{})
	var f Feed
	if f.On() {
		t.Error("a feed without a queue is on")
	}
	f.Use(q)
	const lines = 5000
	for i := range lines {
		f.Add(numbered(i))
		if i%100 == 0 {
			f.Flush()
			awaitFree(t, q, 16)
		}
	}
	f.Flush()
	finish(t, w)
	got := paths(t, d.text())
	if len(got) != lines || counts.Lines.Load() != lines || counts.Overflow.Load() != 0 {
		t.Fatalf("%d lines, counted %d, %d dropped", len(got), counts.Lines.Load(), counts.Overflow.Load())
	}
	for i, path := range got {
		if path != fmt.Sprint("/", i) {
			t.Fatalf("line %d has the path %s", i, path)
		}
	}
	if !d.closed {
		t.Error("the file was not closed")
	}
}

// TestOverflow: while a write hangs, lines are queued up to the bound. Later ones are
// dropped and counted, and the loop doesn't wait. Then the queued ones are written.
func TestOverflow(t *testing.T) {
	d := &disk{room: 1 << 30, begun: make(chan struct{}), released: make(chan struct{})}
	counts := &Counts{}
	q := NewQueue(4*batchSize, 1, counts)
	w := start("test", &output{d}, q, &recorder{})
	var f Feed
	f.Use(q)
	f.Add(numbered(0))
	f.Flush()
	<-d.begun
	added := uint64(1)
	for ; counts.Overflow.Load() < 1000; added++ {
		f.Add(numbered(int(added)))
	}
	queued := added - 1000
	length := len(line(numbered(0)))
	if bound, least := uint64(4*batchSize/length), uint64(2*(batchSize-maxLine)/length); queued > bound || queued < least {
		t.Errorf("%d lines are queued, of %d to %d", queued, least, bound)
	}
	close(d.released)
	go func() {
		for range d.begun {
		}
	}()
	finish(t, w)
	close(d.begun)
	if n := uint64(len(paths(t, d.text()))); n != queued || counts.Lines.Load() != queued {
		t.Errorf("%d lines were written, %d counted, want %d", n, counts.Lines.Load(), queued)
	}
	for range 10 { // after the end: 4 batches are queued, 6 lines are dropped
		f.Add(numbered(0))
		f.Flush()
	}
	if n := counts.Overflow.Load(); n != 1006 {
		t.Errorf("%d dropped after the end, want 1006", n)
	}
}

// TestPerLoop: a small queue still has two batches for each loop.
func TestPerLoop(t *testing.T) {
	if q := NewQueue(64<<10, 8, &Counts{}); cap(q.free) != 16 {
		t.Errorf("%d batches for 8 loops", cap(q.free))
	}
}

// TestCloseTimeout: Close returns at the end of its context although a write hangs.
func TestCloseTimeout(t *testing.T) {
	d := &disk{begun: make(chan struct{}), released: make(chan struct{})}
	q := NewQueue(0, 1, &Counts{})
	w := start("test", &output{d}, q, &recorder{})
	var f Feed
	f.Use(q)
	f.Add(numbered(0))
	f.Flush()
	<-d.begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(d.released)
	<-w.done
}

// TestDiskFull: lines that a full disk does not take are lost and counted, and logged
// once. When there is room again, the next line begins on a line of its own.
func TestDiskFull(t *testing.T) {
	size := len(line(numbered(0)))
	d := &disk{room: 2*size + 7}
	counts, log := &Counts{}, &recorder{}
	q := NewQueue(0, 1, counts)
	w := start("test", &output{d}, q, log)
	var f Feed
	f.Use(q)
	next := 0
	add := func(n int) {
		for range n {
			f.Add(numbered(next))
			next++
		}
		f.Flush()
		awaitFree(t, q, perLoop)
	}
	add(5) // two lines and a part of the third fit
	add(2) // none fits
	if lines, lost, errs := counts.Lines.Load(), counts.Lost.Load(), counts.Errors.Load(); lines != 2 || lost != 5 || errs != 2 {
		t.Errorf("%d lines, %d lost, %d errors; want 2, 5 and 2", lines, lost, errs)
	}
	if log.count() != 1 || !strings.Contains(log.lines[0], "lost3") {
		t.Errorf("%d warnings, want 1: %q", log.count(), log.lines)
	}
	d.grow(1) // room for a newline only
	add(1)
	d.grow(1 << 20)
	add(2)
	finish(t, w)
	got := strings.Split(strings.TrimSuffix(d.text(), "\n"), "\n")
	if len(got) != 5 || len(got[2]) != 7 {
		t.Fatalf("the file has %q", got)
	}
	whole := paths(t, strings.Join(append(got[:2:2], got[3:]...), "\n")+"\n")
	if fmt.Sprint(whole) != "[/0 /1 /8 /9]" {
		t.Errorf("the lines are those of %v", whole)
	}
	if lines, lost := counts.Lines.Load(), counts.Lost.Load(); lines != 4 || lost != 6 {
		t.Errorf("%d lines, %d lost; want 4 and 6", lines, lost)
	}
}

// TestRotation: after a rename lines go to the old file until Reopen, then to a new
// one. Each line is in exactly one of them.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	q := NewQueue(0, 1, &Counts{})
	w, err := Open(path, q, &recorder{})
	if err != nil {
		t.Fatal(err)
	}
	var f Feed
	f.Use(w.Queue())
	add := func(i int) {
		f.Add(numbered(i))
		f.Flush()
		awaitFree(t, q, perLoop)
	}
	add(0)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	add(1)
	for range 2 { // the second replaces an output that was not used yet
		if err := w.Reopen(); err != nil {
			t.Fatal(err)
		}
	}
	add(2)
	finish(t, w)
	for name, want := range map[string]string{path + ".1": "[/0 /1]", path: "[/2]"} {
		text := must.ReadFile(t, name)
		if got := fmt.Sprint(paths(t, string(text))); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
}

// TestReopenFails: if the new file can't be created, lines still go to the old one.
func TestReopenFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "access.log")
	counts := &Counts{}
	w, err := Open(path, NewQueue(0, 1, counts), &recorder{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".1"); err != nil {
		t.Fatal(err)
	}
	if err := w.Reopen(); err == nil || counts.Errors.Load() != 1 {
		t.Errorf("got %v, %d errors", err, counts.Errors.Load())
	}
	var f Feed
	f.Use(w.Queue())
	f.Add(numbered(0))
	f.Flush()
	finish(t, w)
	text, err := os.ReadFile(filepath.Join(dir+".1", "access.log"))
	if err != nil || fmt.Sprint(paths(t, string(text))) != "[/0]" {
		t.Errorf("the old file has %q, %v", text, err)
	}
}

// TestReopenWithinLine: a line that a full disk has cut is ended before the next line, unless that goes to another file.
func TestReopenWithinLine(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) *output {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return &output{f}
	}
	for name, want := range map[string]bool{"a": true, "b": false} {
		w := &Writer{out: file("a"), partial: true}
		w.next.Store(file(name))
		w.switchOutput()
		if w.partial != want {
			t.Errorf("after a change from a to %s the line is cut: %t, want %t", name, w.partial, want)
		}
		_ = w.out.Close()
	}
}

// TestReopenAtOnce: Reopen closes the old file although no line follows, and a second Reopen the one that was not used yet.
func TestReopenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	d := &disk{room: 1 << 20, begun: make(chan struct{}), released: make(chan struct{}), ended: make(chan struct{})}
	q := NewQueue(0, 1, &Counts{})
	w := start(path, &output{d}, q, &recorder{})
	var f Feed
	f.Use(q)
	f.Add(numbered(0))
	f.Flush()
	<-d.begun // the Writer does not change files
	for range 3 {
		if err := w.Reopen(); err != nil {
			t.Fatal(err)
		}
	}
	if n := opened(t, path); n != 1 {
		t.Errorf("the new file is open %d times", n)
	}
	close(d.released)
	select {
	case <-d.ended:
	case <-time.After(timeout):
		t.Fatal("the old file is open")
	}
	if finish(t, w); opened(t, path) != 0 {
		t.Error("the new file is open after the end")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&^0o640 != 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestReopenThenClose: the file of a Reopen just before Close is closed, too.
func TestReopenThenClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	for range 8 { // the Writer may see either first
		d := &disk{room: 1 << 20, begun: make(chan struct{}), released: make(chan struct{})}
		q := NewQueue(0, 1, &Counts{})
		w := start(path, &output{d}, q, &recorder{})
		var f Feed
		f.Use(q)
		f.Add(numbered(0))
		f.Flush()
		<-d.begun
		if err := w.Reopen(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = w.Close(ctx) // does not wait
		close(d.released)
		<-w.done
		if n := opened(t, path); n != 0 {
			t.Fatalf("the file is open %d times", n)
		}
	}
}

// opened returns how many descriptors of this process a file has.
func opened(t *testing.T, path string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if at, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && at == path {
			n++
		}
	}
	return n
}

// TestStandardStreams: a standard stream has a descriptor of its own for the log, which no child gets. It can be reopened.
func TestStandardStreams(t *testing.T) {
	for path, stream := range map[string]*os.File{Stdout: os.Stdout, Stderr: os.Stderr} {
		f, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		var pos, flags int
		_, err = fmt.Sscanf(string(must.ReadFile(t, fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))), "pos:\t%d\nflags:\t%o", &pos, &flags)
		if f.Fd() == stream.Fd() || f.Name() != stream.Name() || err != nil || flags&syscall.O_CLOEXEC == 0 {
			t.Errorf("%s: descriptor %d of %s, flags %o, %v", path, f.Fd(), f.Name(), flags, err)
		}
		w := start(path, &output{f}, NewQueue(0, 1, &Counts{}), &recorder{})
		if err := w.Reopen(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		finish(t, w)
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: the descriptor is open after the end: %v", path, err)
		}
		if _, err := stream.Stat(); err != nil {
			t.Errorf("%s: the stream itself is closed: %v", path, err)
		}
	}
}

// TestOpenFails: a path that can't be written is an error. So is a pipe without a
// reader, and Open doesn't wait for one.
func TestOpenFails(t *testing.T) {
	if w, err := Open(filepath.Join(t.TempDir(), "none", "access.log"), nil, nil); err == nil {
		t.Errorf("got %v", w)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if w, err := Open(pipe, nil, nil); err == nil {
		t.Errorf("got %v", w)
	}
}

// TestAllocations: in steady state a line costs no allocation.
func TestAllocations(t *testing.T) {
	q := NewQueue(0, 1, &Counts{})
	var f Feed
	f.Use(q)
	r := example()
	run := func() {
		for range 1000 {
			f.Add(r)
			if len(q.full) > 0 {
				q.free <- <-q.full
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n > 0 && !racetest.Enabled {
		t.Errorf("%v allocations for 1000 lines", n)
	}
}
