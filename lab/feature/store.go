package feature

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lab/precise"
	"github.com/remora-proxy/remora/lab/server"
	"github.com/remora-proxy/remora/lab/wire"
)

// StoreOptions say how a store behaves. The zero value of a field means its default.
type StoreOptions struct {
	Listen string        // host:port; default "127.0.0.1:0"
	Median time.Duration // of its lognormal latency, without a wait for a worker; default 0.3 ms
	Sigma  float64       // of the logarithm; 0 means constant

	// A worker responds after the latency, and is busy for Busy. So Workers requests at once are
	// fast, and Workers/Busy per second are the most. Defaults: 96 and 150 ms.
	Workers int
	Busy    time.Duration
	Queue   int // requests that wait for a worker, in their order; more are refused; default 1,000

	Minute time.Duration // default 1 min
	Seed   uint64        // of the latencies
}

// StoreStats are the counts of a store since its start or its last reset.
type StoreStats struct {
	Requests int64 `json:"requests"`
	Second0  int64 `json:"second0"` // of Requests, those in the first Window of a minute
	Left     int64 `json:"left"`    // that waited for longer than their client would
	Refused  int64 `json:"refused"` // at a full queue
	Longest  int64 `json:"longest"` // most requests that waited at once
}

// Store is a running store of features. It speaks HTTP/1.1:
//
//	GET  /get?keys=N&wait=D   eight bytes for each key; waits for a worker for D at most
//	POST /reset?epoch=N       sets the counts to 0; some minute begins at N Unix nanoseconds
//	GET  /stats               StoreStats as JSON
//	GET  /healthz             200
//
// It breaks down while more is asked of it than it can serve: its queue then takes longer than the
// timeout of its clients, which ask again.
type Store struct {
	opts    StoreOptions
	server  *server.Server
	workers chan struct{} // has an element for each busy worker
	waiting atomic.Int64

	mu    sync.Mutex // guards the fields below
	epoch time.Time
	stats StoreStats
	rng   *rand.Rand
}

// StartStore listens and serves until Close.
func StartStore(o StoreOptions) (*Store, error) {
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	o.Median = cmp.Or(o.Median, 300*time.Microsecond)
	o.Workers = cmp.Or(o.Workers, 96)
	o.Busy = cmp.Or(o.Busy, 150*time.Millisecond)
	o.Queue = cmp.Or(o.Queue, 1000)
	o.Minute = cmp.Or(o.Minute, time.Minute)
	if o.Median < 0 || o.Sigma < 0 || o.Workers < 0 || o.Busy < 0 || o.Queue < 0 || o.Minute < time.Second {
		return nil, errors.New("store: times and counts must not be negative, and a minute not below 1 s")
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &Store{opts: o, server: server.New(ln), workers: make(chan struct{}, o.Workers), rng: rand.New(rand.NewPCG(o.Seed, 0))}
	s.server.Serve(s.serve)
	return s, nil
}

// Addr returns the address that the store listens on.
func (s *Store) Addr() string { return s.server.Addr() }

// Stats returns the counts.
func (s *Store) Stats() StoreStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close ends all connections.
func (s *Store) Close() error { return s.server.Close() }

func (s *Store) serve(nc *server.Conn) server.Handler {
	var msg wire.Message
	msg.Reset()
	var out []byte
	return func(in []byte) (used int, open bool) {
		used, err := msg.ParseRequest(in)
		if err == wire.ErrIncomplete {
			return 0, true
		}
		if err != nil || used != len(in) {
			return used, false // malformed, or pipelined
		}
		status, body := s.respond(&msg)
		out = msg.AppendResponse(out[:0], status, "", "application/octet-stream", body)
		msg.Reset()
		return used, nc.Respond(out)
	}
}

func (s *Store) respond(msg *wire.Message) (status int, body []byte) {
	u, err := url.ParseRequestURI(string(msg.Target))
	if err != nil {
		return 400, nil
	}
	switch u.Path {
	case "/get":
		return s.get(u.Query())
	case "/reset":
		ns, err := strconv.ParseInt(u.Query().Get("epoch"), 10, 64)
		if err != nil {
			return 400, []byte("epoch: want Unix nanoseconds\n")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.epoch, s.stats = time.Unix(0, ns), StoreStats{}
		return 204, nil
	case "/stats":
		b, _ := json.Marshal(s.Stats()) // plain numbers can't fail
		return 200, b
	case "/healthz":
		return 200, nil
	}
	return 404, nil
}

func (s *Store) get(q url.Values) (status int, body []byte) {
	keys, err := strconv.Atoi(q.Get("keys"))
	if err != nil || keys < 1 || keys > MaxKeys {
		return 400, []byte("keys: want a number\n")
	}
	wait, err := time.ParseDuration(q.Get("wait"))
	if err != nil {
		return 400, []byte("wait: want a time\n")
	}
	switch err := s.work(s.arrive(time.Now()), wait); err {
	case errFull:
		s.count(&s.stats.Refused)
		return 503, nil
	case errLate:
		s.count(&s.stats.Left)
		return 504, nil
	}
	return 200, make([]byte, 8*keys)
}

// arrive counts a request that comes at now, and draws its latency.
func (s *Store) arrive(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Requests++
	if InWindow(now.Sub(s.epoch), s.opts.Minute) {
		s.stats.Second0++
	}
	return time.Duration(float64(s.opts.Median) * math.Exp(s.opts.Sigma*s.rng.NormFloat64()))
}

func (s *Store) count(n *int64) {
	s.mu.Lock()
	*n++
	s.mu.Unlock()
}

var (
	errFull = errors.New("the queue is full")
	errLate = errors.New("no worker in time")
)

// work waits for a worker, and for its response. The worker stays busy after that.
func (s *Store) work(latency, wait time.Duration) error {
	select {
	case s.workers <- struct{}{}:
	default:
		if err := s.wait(wait); err != nil {
			return err
		}
	}
	time.AfterFunc(s.opts.Busy, func() { <-s.workers })
	precise.Sleep(latency)
	return nil
}

func (s *Store) wait(d time.Duration) error {
	defer s.waiting.Add(-1)
	n := s.waiting.Add(1)
	if n > int64(s.opts.Queue) {
		return errFull
	}
	s.mu.Lock()
	s.stats.Longest = max(s.stats.Longest, n)
	s.mu.Unlock()
	select {
	case s.workers <- struct{}{}:
		return nil
	case <-time.After(d):
		return errLate
	case <-s.server.Context().Done():
		return errLate
	}
}
