package sidecar

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestRetries: a content that was refused for a reason that may pass is tried after ever longer pauses, and
// one that replaces it soon.
func TestRetries(t *testing.T) {
	var r retries
	r.tried(true, true)
	var at []int
	for i := 1; i <= 200; i++ {
		if r.due() {
			at = append(at, i)
			r.tried(false, true)
		}
	}
	if want := []int{5, 15, 35, 75, 135, 195}; !slices.Equal(at, want) {
		t.Errorf("tried again at %d, want %d", at, want)
	}
	r.tried(true, true)
	if r.left != firstRetry {
		t.Errorf("new content is tried again after %d", r.left)
	}
	r.tried(true, false)
	for range 2 * lastRetry {
		if r.due() {
			t.Fatal("tried again though it was applied, or can't be")
		}
	}
}

// TestRetryWaitsForWrites: a retry does not read a file that is being written.
func TestRetryWaitsForWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "remora.yaml")
	write := func(text string) {
		must.WriteFile(t, path, text)
	}
	write("refused")
	f := OpenConfigFile(path)
	var again retries
	again.tried(true, true)
	for i := range firstRetry - 1 {
		if try, _ := f.next(&again); try {
			t.Fatalf("tried after %d intervals", i+1)
		}
	}
	write("refu")
	if try, _ := f.next(&again); try {
		t.Error("tried while it changes")
	}
	write("refused")
	if try, isNew := f.next(&again); !try || isNew {
		t.Errorf("tried %t, as new %t, after the write", try, isNew)
	}
}
