package feature

import (
	"context"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/lab/child"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Netpoll) }

func startStore(t *testing.T, o StoreOptions) (*Store, *Client) {
	t.Helper()
	s, err := StartStore(o)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(s.Addr())
	t.Cleanup(func() {
		c.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, c
}

var some = &Request{"speed", 3, 1}

// TestStoreBreaksDown: the worker of the first request is busy, so that the others wait in vain.
func TestStoreBreaksDown(t *testing.T) {
	s, c := startStore(t, StoreOptions{Workers: 1, Busy: time.Hour, Queue: 1, Median: time.Microsecond})
	if err := c.Get(some, 5); err != nil {
		t.Fatal(err)
	}
	c.Timeout = time.Millisecond
	if err := c.Get(some, 5); err == nil || err.Error() != "the store: Gateway Timeout" {
		t.Errorf("err = %v", err)
	}
	if got, asked := s.Stats(), int64(c.Attempts); got.Requests != 1+asked || got.Left != asked || got.Longest != 1 || got.Refused != 0 {
		t.Errorf("%+v, want %d that left", got, asked)
	}
	// One that waits fills the queue.
	patient := NewClient(s.Addr())
	patient.Timeout, patient.Attempts = time.Hour, 1
	ended := make(chan error, 1)
	go func() { ended <- patient.Get(some, 5) }()
	eventually.True(t, "a request waits", func() bool { return s.waiting.Load() == 1 })
	if err := c.Get(some, 5); err == nil || err.Error() != "the store: Service Unavailable" {
		t.Errorf("err = %v", err)
	}
	if got := s.Stats(); got.Refused != int64(c.Attempts) {
		t.Errorf("%+v", got)
	}
	<-s.workers // the busy one is free
	if err := <-ended; err != nil {
		t.Error(err)
	}
	patient.Close()
}

// TestStoreServes as many requests as come, once workers are free again.
func TestStoreServes(t *testing.T) {
	s, c := startStore(t, StoreOptions{Workers: 1, Busy: time.Microsecond, Median: time.Microsecond})
	c.Timeout = time.Minute
	for range 20 {
		if err := c.Get(some, MaxKeys); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Stats(); got.Requests != 20 || got.Left+got.Refused != 0 {
		t.Errorf("%+v", got)
	}
}

func TestStoreCountsSecond0(t *testing.T) {
	_, c := startStore(t, StoreOptions{Minute: time.Hour, Median: time.Microsecond})
	for since, want := range map[time.Duration]int64{0: 1, time.Hour: 1, 30 * time.Minute: 0} {
		if err := ResetStore(t.Context(), c.Addr, time.Now().Add(-since)); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(some, 1); err != nil {
			t.Fatal(err)
		}
		if got, err := AskStats(t.Context(), c.Addr); err != nil || got.Requests != 1 || got.Second0 != want {
			t.Errorf("%v after the start of a minute: %+v, %v", since, got, err)
		}
	}
}

func TestStoreRefuses(t *testing.T) {
	s, c := startStore(t, StoreOptions{})
	for _, path := range []string{"/get", "/get?keys=0&wait=1s", "/get?keys=10001&wait=1s", "/get?keys=1", "/reset", "/nothing"} {
		if b, err := child.Call(t.Context(), "GET", "http://"+s.Addr()+path); err == nil {
			t.Errorf("%s: %q", path, b)
		}
	}
	c.Addr = "127.0.0.1:1"
	if err := c.Get(some, 1); err == nil {
		t.Error("nobody listens, but there was a response")
	}
	for _, o := range []StoreOptions{{Workers: -1}, {Busy: -1}, {Queue: -1}, {Median: -1}, {Minute: time.Millisecond}, {Listen: "nowhere"}} {
		if s, err := StartStore(o); err == nil {
			s.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := AskStats(context.Background(), "127.0.0.1:1"); err == nil {
		t.Error("counts of no store")
	}
}
