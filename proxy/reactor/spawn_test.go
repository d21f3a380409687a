package reactor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestSpawn: functions that wait for each other all run, on new goroutines and on those that wait. No more than maxWaiting stay, and
// Stop ends them.
func TestSpawn(t *testing.T) {
	r := start(t, Options{})
	r.wait = waitLimit
	const functions = 3 * maxWaiting
	for range 3 {
		begun, end := make(chan struct{}), make(chan struct{})
		for range functions {
			if !r.spawn(func() { begun <- struct{}{}; <-end }) {
				t.Fatal("not started")
			}
		}
		for range functions {
			<-begun
		}
		close(end)
		eventually(t, func() error {
			if n := r.waiting.Load(); n != maxWaiting {
				return fmt.Errorf("%d goroutines wait", n)
			}
			return nil
		})
	}
	if err := r.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if n := r.waiting.Load(); n != 0 || r.spawn(func() {}) {
		t.Errorf("%d goroutines wait after Stop", n)
	}
}

// TestSpawnRests: goroutines without more to do end.
func TestSpawnRests(t *testing.T) {
	r := start(t, Options{})
	r.wait = time.Millisecond
	for range 2 * maxWaiting {
		r.spawn(func() {})
	}
	r.helpers.Wait()
	if n := r.waiting.Load(); n != 0 {
		t.Errorf("%d goroutines wait", n)
	}
}

// TestSpawnWaitsAnew: a goroutine waits for its whole time, however long its function took.
func TestSpawnWaitsAnew(t *testing.T) {
	r := start(t, Options{})
	r.wait = 1 // over before the function has returned
	r.spawn(func() { r.wait = waitLimit })
	eventually(t, func() error {
		if n := r.waiting.Load(); n != 1 {
			return fmt.Errorf("%d goroutines wait", n)
		}
		return nil
	})
}

// TestSpawnPanics: a goroutine whose function panics goes on.
func TestSpawnPanics(t *testing.T) {
	r := start(t, Options{})
	r.wait = waitLimit
	done := make(chan struct{})
	r.spawn(func() { panic("a test") })
	eventually(t, func() error {
		if r.waiting.Load() != 1 {
			return errors.New("the goroutine has not come back")
		}
		return nil
	})
	r.spawn(func() { close(done) })
	<-done
	if n := r.Stats().Panics; n != 1 {
		t.Errorf("%d panics were counted", n)
	}
}
