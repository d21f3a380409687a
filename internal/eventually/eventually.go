// Package eventually waits, in tests, for what other goroutines and processes do.
package eventually

import (
	"errors"
	"testing"
	"time"
)

const (
	// patience is how long anything may take, on a machine that is busy too.
	patience = time.Minute
	// look is how often it is looked at.
	look = 5 * time.Millisecond
)

var errNot = errors.New("it is not so")

// Nil calls try until it returns nil, and ends the test with its last error when
// that takes longer than a minute. what is awaited is named in the message.
func Nil(t testing.TB, what string, try func() error) {
	t.Helper()
	within(t, patience, what, try)
}

// True is Nil for what says only whether it is so.
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, patience, what, func() error {
		if ok() {
			return nil
		}
		return errNot
	})
}

func within(t testing.TB, patience time.Duration, what string, try func() error) {
	t.Helper()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	end := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s: %v", what, err)
		}
		<-ticker.C
	}
}
