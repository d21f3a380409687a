// Package eventually waits, in tests, for conditions that other goroutines and
// processes bring about. It is test support; no command may import it.
package eventually

import (
	"errors"
	"testing"
	"time"
)

const (
	// timeout is long enough for a busy machine.
	timeout  = time.Minute
	interval = 5 * time.Millisecond
)

var errFalse = errors.New("the condition is false")

// Nil calls try until it returns nil. After a minute it fails the test with the
// last error; what names the awaited event in the message.
func Nil(t testing.TB, what string, try func() error) {
	t.Helper()
	Within(t, timeout, what, try)
}

// True calls ok until it returns true. After a minute it fails the test.
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, timeout, what, func() error {
		if ok() {
			return nil
		}
		return errFalse
	})
}

// Within is Nil with another timeout, for what takes longer than a minute.
func Within(t testing.TB, timeout time.Duration, what string, try func() error) {
	t.Helper()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	end := time.Now().Add(timeout)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s: %v", what, err)
		}
		<-ticker.C
	}
}
