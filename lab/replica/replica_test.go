package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab/wire"
)

func TestResponses(t *testing.T) {
	r := start(t, Options{Mode: Fast, Name: "r1"}, nil)
	for _, tt := range []struct {
		method, request string
		status          int
		body            string // "*": any
	}{
		{"GET", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, "ok\n"},
		{"HEAD", "HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, ""},
		{"GET", "GET /compute HTTP/1.1\r\nHost: x\r\n\r\n", 405, "*"},
		{"GET", "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, "*"},
		{"POST", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"},
		{"POST", "POST /echo?q=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n", 200, "abcde"},
		{"GET", "GET /bytes?size=16777217 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "*"},
		{"GET", "GET /bytes HTTP/1.1\r\nHost: x\r\n\r\n", 400, "*"},
		{"POST", "POST /reset?epoch=zero HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 400, "*"},
		{"POST", "POST /reset?epoch=5 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 204, ""},
	} {
		for _, perByte := range []bool{false, true} {
			c, br := dial(t, r)
			chunks := []string{tt.request}
			if perByte {
				chunks = strings.Split(tt.request, "")
			}
			for _, s := range chunks {
				io.WriteString(c, s)
			}
			resp, body := answer(t, br, tt.method)
			if resp.StatusCode != tt.status || tt.body != "*" && body != tt.body {
				t.Errorf("%q: %d %q, want %d %q", tt.request, resp.StatusCode, body, tt.status, tt.body)
			}
			if resp.Header.Get("x-replica") != "r1" {
				t.Errorf("%q: x-replica %q", tt.request, resp.Header.Get("x-replica"))
			}
		}
	}
}

// TestBodySizes checks that a connection serves sizes in any order.
func TestBodySizes(t *testing.T) {
	r := start(t, Options{Mode: Fast}, nil)
	c, br := dial(t, r)
	for _, size := range []int{9, 100_000, 0, 5} {
		fmt.Fprintf(c, "GET /bytes?size=%d HTTP/1.1\r\nHost: x\r\n\r\n", size)
		if _, body := answer(t, br, "GET"); body != strings.Repeat("\x00", size) {
			t.Errorf("%d bytes, want %d", len(body), size)
		}
	}
}

func TestComputeResponse(t *testing.T) {
	r := start(t, Options{Mode: Fast, Name: "r1"}, nil)
	c, br := dial(t, r)
	fmt.Fprintf(c, compute, 1)
	resp, body := answer(t, br, "POST")
	if len(body) != 200 || !json.Valid([]byte(body)) || resp.Header.Get("content-type") != "application/json" {
		t.Errorf("%d bytes of %s: %s", len(body), resp.Header.Get("content-type"), body)
	}
}

func TestPipelining(t *testing.T) {
	r := start(t, Options{Mode: Fast}, nil)
	c, br := dial(t, r)
	var all bytes.Buffer
	const n = 100
	for i := range n {
		fmt.Fprintf(&all, compute, i)
	}
	c.Write(all.Bytes())
	for i := range n {
		resp, _ := answer(t, br, "POST")
		if got := resp.Header.Get("x-nonce"); got != fmt.Sprint(i) {
			t.Fatalf("response %d has nonce %q", i, got)
		}
	}
	if got := r.Stats(); got.Served != n {
		t.Errorf("stats %+v, want %d served", got, n)
	}
	eventually.True(t, "no request in flight", func() bool { return r.Stats().InFlight == 0 })
}

func TestConnectionClose(t *testing.T) {
	r := start(t, Options{Mode: Fast}, nil)
	for _, tt := range []struct {
		request string
		status  int
	}{
		{"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200},
		{"GET /healthz HTTP/1.0\r\n\r\n", 200},
		{"BROKEN\r\n\r\n", 400},
	} {
		c, br := dial(t, r)
		io.WriteString(c, tt.request)
		resp, _ := answer(t, br, "GET")
		if resp.StatusCode != tt.status || !resp.Close {
			t.Errorf("%q: status %d, close %v", tt.request, resp.StatusCode, resp.Close)
		}
		// A reset is fine too: input may be left unread.
		if rest, err := io.ReadAll(br); len(rest) > 0 {
			t.Errorf("%q: then %q, %v", tt.request, rest, err)
		}
	}
}

func TestContinue(t *testing.T) {
	r := start(t, Options{Mode: Fast}, nil)
	c, br := dial(t, r)
	io.WriteString(c, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	if line, err := br.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	br.ReadString('\n')
	io.WriteString(c, "a")
	io.WriteString(c, "bc")
	if _, body := answer(t, br, "POST"); body != "abc" {
		t.Errorf("body %q", body)
	}
}

func TestFreeze(t *testing.T) {
	clock := newFakeClock()
	epoch := clock.now()
	o := Options{Mode: Stall, Seed: 1, StallMean: mean, StallLen: long, Median: msec}
	r := start(t, o, clock)
	freeze := first(1, 1)[0]

	clock.set(epoch.Add(freeze.Start + 10*msec))
	const n = 20
	answered := make(chan error, n)
	for i := range n {
		c, br := dial(t, r)
		fmt.Fprintf(c, compute, i)
		go func() {
			resp, err := http.ReadResponse(br, nil)
			if err == nil && resp.StatusCode != 200 {
				err = fmt.Errorf("status %d", resp.StatusCode)
			}
			answered <- err
		}()
	}
	clock.awaitAsleep(t, n)
	clock.set(epoch.Add(freeze.End)) // thawed, but none has done its millisecond
	clock.awaitAsleep(t, n)
	if s := r.Stats(); s.Served != 0 || s.InFlight != n || s.Stalls != 1 {
		t.Errorf("at the end of the freeze: %+v", s)
	}
	clock.set(epoch.Add(freeze.End + msec))
	for range n {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	clock.awaitAsleep(t, 0)
}

func TestCorrelatedFreezes(t *testing.T) {
	clock := newFakeClock()
	finish := func(mode Mode, name string, seed uint64, started time.Duration) []time.Duration {
		o := Options{Mode: mode, Name: name, Seed: seed, StallMean: mean, StallLen: long}
		o, err := o.withDefaults(clock.now().Add(started))
		if err != nil {
			t.Fatal(err)
		}
		s := newService(o)
		s.now = func() time.Time { return clock.now().Add(started) }
		s.reset(o.Epoch)
		var frozen []time.Duration // moments at which work of 1 ms takes longer
		for at := 10 * time.Second; at < 200*time.Second; at += msec {
			start := clock.now().Add(at)
			if s.finish(start, 0).Sub(start) > msec+time.Microsecond {
				frozen = append(frozen, at)
			}
		}
		return frozen
	}
	a, b := finish(Correlated, "a", 4, 0), finish(Correlated, "b", 4, 7*time.Second)
	if len(a) == 0 || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("frozen for %d and %d ms, not at the same moments", len(a), len(b))
	}
	c, d := finish(Stall, "a", 4, 0), finish(Stall, "b", 5, 0)
	both := map[time.Duration]bool{}
	for _, at := range c {
		both[at] = true
	}
	shared := 0
	for _, at := range d {
		if both[at] {
			shared++
		}
	}
	if len(c) == 0 || len(d) == 0 || shared*4 > len(c) {
		t.Errorf("frozen for %d and %d ms, %d of them together", len(c), len(d), shared)
	}
}

func TestServiceTimes(t *testing.T) {
	draw := func(name string, seed uint64) []time.Duration {
		o, _ := Options{Mode: GC, Name: name, Seed: seed, Sigma: .5, StallMean: mean}.withDefaults(time.Unix(0, 0))
		s := newService(o)
		var ds []time.Duration
		for range 4001 {
			ds = append(ds, s.finish(o.Epoch, 0).Sub(o.Epoch))
		}
		return ds
	}
	a, b, other := draw("a", 1), draw("a", 1), draw("b", 1)
	if fmt.Sprint(a) != fmt.Sprint(b) || fmt.Sprint(a) == fmt.Sprint(other) {
		t.Error("service times do not depend on seed and name alone")
	}
	below, farAbove := 0, 0
	for _, d := range a {
		if d < msec {
			below++
		}
		if d > 1649*time.Microsecond { // e^0.5: one sigma
			farAbove++
		}
	}
	if below < 1850 || below > 2150 || farAbove < 540 || farAbove > 730 { // 2000 and 635 expected
		t.Errorf("of 4001: %d below the median, %d above one sigma", below, farAbove)
	}
}

func TestAborted(t *testing.T) {
	clock := newFakeClock()
	r := start(t, Options{Mode: Stall}, clock)
	c, _ := dial(t, r)
	fmt.Fprintf(c, compute, 1)
	clock.awaitAsleep(t, 1)
	c.Close()
	eventually.True(t, "the client has left", func() bool { return r.server.Clients() == 0 })
	clock.set(clock.now().Add(time.Second))
	clock.awaitAsleep(t, 0)
	eventually.True(t, "no request in flight", func() bool { return r.Stats().InFlight == 0 })
	if s := r.Stats(); s.Served != 1 || s.Aborted != 1 {
		t.Errorf("stats %+v, want 1 served, 1 aborted", s)
	}
}

// TestHalfClose checks that a client which has sent all gets its responses.
func TestHalfClose(t *testing.T) {
	r := start(t, Options{Mode: Fast}, nil)
	c, br := dial(t, r)
	fmt.Fprintf(c, compute, 1)
	fmt.Fprintf(c, "GET /bytes?size=%d HTTP/1.1\r\nHost: x\r\n\r\n", wire.MaxBody)
	c.(*net.TCPConn).CloseWrite()
	answer(t, br, "POST")
	if _, body := answer(t, br, "GET"); len(body) != wire.MaxBody {
		t.Errorf("%d bytes, want %d", len(body), wire.MaxBody)
	}
	if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
}

// TestLimits checks that heads and bodies beyond the limits are refused.
func TestLimits(t *testing.T) {
	r := start(t, Options{Mode: Fast}, nil)
	for _, request := range []string{
		"GET /" + strings.Repeat("x", wire.MaxHead),
		fmt.Sprintf("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", wire.MaxBody+1),
	} {
		c, br := dial(t, r)
		io.WriteString(c, request)
		if resp, body := answer(t, br, "GET"); resp.StatusCode != 400 || !resp.Close || body != wire.ErrTooLarge.Error()+"\n" {
			t.Errorf("%.40q: status %d, close %v, %q", request, resp.StatusCode, resp.Close, body)
		}
	}
}

func TestReset(t *testing.T) {
	clock := newFakeClock()
	r := start(t, Options{Mode: Stall, Seed: 1, StallMean: mean, StallLen: long}, clock)
	draw := func() (ds []time.Duration) {
		for range 10 {
			ds = append(ds, r.service.finish(clock.now(), 0).Sub(clock.now()))
		}
		return ds
	}
	before := draw()
	clock.set(clock.now().Add(time.Hour))
	r.service.served.Store(5)
	r.service.reset(clock.now())
	if after := draw(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("service times %v after the reset, %v before", after, before)
	}
	if s := r.Stats(); s.Served != 0 || s.Stalls != 0 {
		t.Errorf("stats %+v after the reset", s)
	}
	clock.set(clock.now().Add(first(1, 3)[2].Start))
	for range 2 {
		if s := r.Stats(); s.Stalls != 3 {
			t.Errorf("%d freezes begun, want 3", s.Stalls)
		}
	}
}

func TestCacheRefill(t *testing.T) {
	r := start(t, Options{Mode: GC, StallMean: msec, CacheEntries: 2000}, nil)
	c, br := dial(t, r)
	deadline := time.Now().Add(testTimeout)
	for r.Stats().Stalls < 3 {
		if time.Now().After(deadline) {
			t.Fatal("the cache was not refilled")
		}
		fmt.Fprintf(c, compute, 1)
		if resp, _ := answer(t, br, "POST"); resp.StatusCode != 200 {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{
		{Mode: "slow"}, {Median: -1}, {Sigma: -1}, {StallMean: -1}, {StallLen: -1},
		{Mode: GC}, {Protocol: "thrift"}, {Service: "uniform"}, {Workers: -1}, {Name: "a\r\nb"}, {Name: `a"b`}, {Name: strings.Repeat("x", 65)}, {Listen: "nowhere"},
	} {
		if r, err := Start(o); err == nil {
			t.Errorf("%+v was accepted", o)
			r.Close(context.Background())
		}
	}
}

// TestWorkers: two workers take requests in their order, and freezes delay the queue.
func TestWorkers(t *testing.T) {
	clock := newFakeClock()
	o, err := Options{Mode: Stall, Workers: 2, Epoch: clock.now()}.withDefaults(clock.now())
	if err != nil {
		t.Fatal(err)
	}
	s := newService(o)
	s.now = clock.now
	for i, want := range []time.Duration{1, 1, 2, 2, 3} {
		if got := s.finish(clock.now(), 0).Sub(o.Epoch); got != want*time.Millisecond {
			t.Errorf("request %d ends after %v, want %d ms", i, got, want)
		}
	}
	later := clock.now().Add(time.Second)
	if got := s.finish(later, 0).Sub(later); got != time.Millisecond {
		t.Errorf("with all workers free a request takes %v", got)
	}
}

// TestNature: a request is long or short by its nonce, on whichever replica.
func TestNature(t *testing.T) {
	o := Options{Service: Natural, Median: time.Millisecond}
	one, other, usual := newService(o), newService(o), newService(Options{Service: Lognormal})
	long := 0
	const n = 10_000
	for i := range n {
		nonce := fmt.Appendf(nil, "%016x", i)
		extra := one.byNature(nonce)
		if again := other.byNature(nonce); again != extra || usual.byNature(nonce) != 0 {
			t.Fatalf("nonce %s: %v, then %v", nonce, extra, again)
		}
		if extra > 0 {
			long++
		}
	}
	if long < n/11 || long > n/9 {
		t.Errorf("%d of %d are long, want a tenth", long, n)
	}
}

// TestServices compares the means of service times with those of the distributions.
func TestServices(t *testing.T) {
	for _, c := range []struct {
		service    Service
		stragglers float64
		want       float64 // mean, in medians of 1 ms
	}{
		{Lognormal, 0, 1.133}, {Exponential, 0, 1}, {Bimodal, 0, 2.133}, {Lognormal, 0.05, 1.133 + 0.05*45}, {Exponential, 1, 46},
	} {
		o, err := Options{Service: c.service, Sigma: 0.5, Stragglers: c.stragglers}.withDefaults(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		s, sum := newService(o), 0.0
		const n = 200_000
		for range n {
			sum += s.draw()
		}
		if mean := sum / n; mean < c.want*.97 || mean > c.want*1.03 {
			t.Errorf("%s, %.0f%% stragglers: a mean of %.3f medians, want %.3f", c.service, 100*c.stragglers, mean, c.want)
		}
	}
}

// lines is a log, each line of which can be received.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestLog: a request is logged as soon as its work begins, with its nonce if it has one.
func TestLog(t *testing.T) {
	clock, log := newFakeClock(), make(lines, 3)
	clock.set(time.Unix(7, 0))
	r := start(t, Options{Log: log}, clock)
	c, br := dial(t, r)
	fmt.Fprintf(c, compute, 12)
	clock.awaitAsleep(t, 1)
	if got := <-log; got != "7000000 12\n" {
		t.Errorf("%q at the start of the work", got)
	}
	clock.set(time.Unix(9, 0))
	answer(t, br, "POST")
	io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nPOST /compute HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	answer(t, br, "GET")
	clock.awaitAsleep(t, 1)
	if got := <-log; got != "9000000 -\n" || len(log) > 0 {
		t.Errorf("%q without a nonce, and %d lines more", got, len(log))
	}
	clock.set(time.Unix(11, 0))
	answer(t, br, "POST")
}
