package feature

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/precise"
)

// StoreOptions say how a store behaves. The zero value of a field means its default.
type StoreOptions struct {
	Listen string        // host:port; default "127.0.0.1:0"
	Median time.Duration // of its lognormal latency, without a wait for a worker; default 0.5 ms
	Sigma  float64       // of the logarithm; 0 means constant

	// A worker responds after the latency, and is busy for Busy. So Workers requests at once are
	// fast, and Workers/Busy per second are the most. Defaults: 32 and 50 ms.
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
	Left     int64 `json:"left"`    // whose client left while they waited
	Refused  int64 `json:"refused"` // at a full queue
	Longest  int64 `json:"longest"` // most requests that waited at once
}

// Store is a running store of features. It serves GET /get?keys=N, and POST /reset?epoch=UNIXNANO,
// the start of some minute. GET /stats has the counts. It breaks down while more is asked of it
// than it can serve: its queue then outlasts the patience of its clients, which ask again.
type Store struct {
	opts     StoreOptions
	server   http.Server
	listener net.Listener
	served   chan struct{} // closed when the server has ended
	workers  chan struct{} // has an element for each busy worker
	epoch    atomic.Int64  // Unix nanoseconds
	waiting  atomic.Int64

	mu    sync.Mutex // guards the fields below
	stats StoreStats
	rng   *rand.Rand
}

// StartStore listens and serves until Close.
func StartStore(o StoreOptions) (*Store, error) {
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	o.Median = cmp.Or(o.Median, 500*time.Microsecond)
	o.Workers = cmp.Or(o.Workers, 32)
	o.Busy = cmp.Or(o.Busy, 50*time.Millisecond)
	o.Queue = cmp.Or(o.Queue, 1000)
	o.Minute = cmp.Or(o.Minute, time.Minute)
	if o.Median < 0 || o.Sigma < 0 || o.Workers < 0 || o.Busy < 0 || o.Queue < 0 || o.Minute < time.Second {
		return nil, errors.New("store: times and counts must not be negative, and a minute not below 1 s")
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &Store{
		opts: o, listener: ln, served: make(chan struct{}), workers: make(chan struct{}, o.Workers),
		rng: rand.New(rand.NewPCG(o.Seed, 0)),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /get", s.get)
	mux.HandleFunc("POST /reset", s.reset)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(s.Stats()) })
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	s.server.Handler = mux
	go func() {
		defer close(s.served)
		s.server.Serve(ln) // returns when Close closes the listener
	}()
	return s, nil
}

// Addr returns the address that the store listens on.
func (s *Store) Addr() string { return s.listener.Addr().String() }

// Stats returns the counts.
func (s *Store) Stats() StoreStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close ends all connections.
func (s *Store) Close() error {
	err := s.server.Close()
	<-s.served
	return err
}

func (s *Store) reset(w http.ResponseWriter, r *http.Request) {
	epoch, err := strconv.ParseInt(r.URL.Query().Get("epoch"), 10, 64)
	if err != nil {
		http.Error(w, "epoch: want Unix nanoseconds", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch.Store(epoch)
	s.stats = StoreStats{}
}

func (s *Store) get(w http.ResponseWriter, r *http.Request) {
	keys, err := strconv.Atoi(r.URL.Query().Get("keys"))
	if err != nil || keys < 1 || keys > MaxKeys {
		http.Error(w, "keys: want a number", http.StatusBadRequest)
		return
	}
	latency := s.arrive(time.Now())
	switch err := s.work(r.Context(), latency); {
	case errors.Is(err, errFull):
		s.count(&s.stats.Refused)
		http.Error(w, "busy", http.StatusServiceUnavailable)
	case err != nil:
		s.count(&s.stats.Left)
	default:
		w.Write(make([]byte, 8*keys))
	}
}

// arrive counts a request that comes at now, and draws its latency.
func (s *Store) arrive(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Requests++
	if InWindow(now.Sub(time.Unix(0, s.epoch.Load())), s.opts.Minute) {
		s.stats.Second0++
	}
	return time.Duration(float64(s.opts.Median) * math.Exp(s.opts.Sigma*s.rng.NormFloat64()))
}

func (s *Store) count(n *int64) {
	s.mu.Lock()
	*n++
	s.mu.Unlock()
}

var errFull = errors.New("the queue is full")

// work waits for a worker, and for its response. The worker stays busy after that.
func (s *Store) work(ctx context.Context, latency time.Duration) error {
	select {
	case s.workers <- struct{}{}:
	default:
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
	time.AfterFunc(s.opts.Busy, func() { <-s.workers })
	precise.Sleep(latency)
	return nil
}

func (s *Store) wait(ctx context.Context) error {
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
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Client asks a store. It gives up waiting and asks again, as clients of stores do.
type Client struct {
	Addr     string
	Patience time.Duration // with one attempt
	Attempts int
	http     http.Client
}

// NewClient returns a client that waits 20 ms, and asks at most three times.
func NewClient(addr string) *Client {
	return &Client{Addr: addr, Patience: 20 * time.Millisecond, Attempts: 3,
		http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get asks for some keys of a request.
func (c *Client) Get(r *Request, keys int) (err error) {
	target := fmt.Sprintf("http://%s/get?key=%s&keys=%d", c.Addr, url.QueryEscape(r.Key()), keys)
	for range c.Attempts {
		if err = c.try(target); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the store: %w", err)
}

func (c *Client) try(target string) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return err
}

// ResetStore resets the counts of the store at addr. Some minute begins at epoch.
func ResetStore(ctx context.Context, addr string, epoch time.Time) error {
	_, err := child.Call(ctx, http.MethodPost, fmt.Sprintf("http://%s/reset?epoch=%d", addr, epoch.UnixNano()))
	return err
}

// AskStats returns the counts of the store at addr.
func AskStats(ctx context.Context, addr string) (s StoreStats, err error) {
	b, err := child.Call(ctx, http.MethodGet, "http://"+addr+"/stats")
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}
