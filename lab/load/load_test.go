package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab/replica"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Netpoll) }

// testTimeout bounds a run. No result depends on it.
const testTimeout = time.Minute

// serve calls handle for each request. n counts the requests of all connections from 1. The
// connection ends if handle returns false.
func serve(t *testing.T, handle func(n int64, nonce string, c net.Conn) bool) (url string) {
	t.Helper()
	return serveRequests(t, func(n int64, req *http.Request, _ string, c net.Conn) bool {
		return handle(n, req.Header.Get("x-nonce"), c)
	})
}

// serveRequests is serve for those who want the request and its body.
func serveRequests(t *testing.T, handle func(n int64, req *http.Request, body string, c net.Conn) bool) (url string) {
	t.Helper()
	ln := must.Listen(t)
	var count atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				br := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					body, err := io.ReadAll(req.Body)
					if err != nil || !handle(count.Add(1), req, string(body), c) {
						return
					}
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String() + "/compute"
}

func ok(nonce string, c net.Conn) bool {
	_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nx-nonce: %s\r\ncontent-length: 2\r\n\r\nok", nonce)
	return err == nil
}

func run(t *testing.T, o Options) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if o.Timeout == 0 {
		o.Timeout = testTimeout
	}
	res, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestFreeze holds requests 101 to 200 until the 200th has come, which is not before it was due.
// A slow machine only adds to the latencies.
func TestFreeze(t *testing.T) {
	thaw := make(chan struct{})
	url := serve(t, func(n int64, nonce string, c net.Conn) bool {
		switch {
		case n == 200:
			close(thaw)
		case n > 100 && n < 200:
			<-thaw
		}
		return ok(nonce, c)
	})
	res := run(t, Options{Targets: []string{url}, Rate: 1000, Duration: 400 * time.Millisecond, Connections: 8})
	if res.Counts.Requests != 400 || res.Counts.Failed() != 0 || res.Counts.Statuses[200] != 400 || res.Sent != 400 {
		t.Fatalf("%+v, sent %d; want 400 good ones", res.Counts, res.Sent)
	}
	// The first of them waits 99 ms until the last is due, the next one 98 ms, and so on.
	// Requests may overtake each other, so the server's count and the generator's may differ
	// by the slack.
	const slack = 15
	for i := range 80 {
		q := 1 - float64(i+1)/400
		if got, want := res.Quantile(q), time.Duration(99-i-slack)*time.Millisecond; got < want {
			t.Errorf("the %d. slowest took %v, want at least %v", i+1, got, want)
		}
	}
}

// TestSendLag checks that requests behind a slow one on the only connection count from their
// intended send times, and that the lag has their wait.
func TestSendLag(t *testing.T) {
	const hold = 60 * time.Millisecond
	url := serve(t, func(n int64, nonce string, c net.Conn) bool {
		if n == 1 {
			time.Sleep(hold)
		}
		return ok(nonce, c)
	})
	res := run(t, Options{Targets: []string{url}, Rate: 1000, Duration: 50 * time.Millisecond, Connections: 1, MaxConnections: 1})
	if res.Counts.Requests != 50 || res.Counts.Failed() != 0 || res.Connections != 1 {
		t.Fatalf("%+v over %d connections", res.Counts, res.Connections)
	}
	// The i-th was due i ms after the first, and got its response after the hold.
	if got := time.Duration(res.Latency.Min()); got < 10*time.Millisecond {
		t.Errorf("the fastest took %v, want at least 10 ms", got)
	}
	if got := time.Duration(res.Lag.Max()); got < 58*time.Millisecond {
		t.Errorf("send lag at most %v, want at least 58 ms", got)
	}
}

func TestErrorKinds(t *testing.T) {
	for _, tt := range []struct {
		kind   ErrorKind
		status int
		handle func(nonce string, c net.Conn) bool
	}{
		{ErrStatus, 503, func(nonce string, c net.Conn) bool {
			_, err := fmt.Fprint(c, "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
			return err == nil
		}},
		{ErrNonce, 200, func(nonce string, c net.Conn) bool { return ok("someone-else's", c) }},
		{ErrNonce, 200, func(nonce string, c net.Conn) bool {
			_, err := fmt.Fprint(c, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
			return err == nil
		}},
		{ErrReset, 0, func(string, net.Conn) bool { return false }},
		{ErrReset, 0, func(_ string, c net.Conn) bool {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
			return false
		}},
		{ErrProtocol, 0, func(_ string, c net.Conn) bool { fmt.Fprint(c, "SSH-2.0\r\n\r\n"); return true }},
	} {
		url := serve(t, func(n int64, nonce string, c net.Conn) bool {
			if n%4 == 0 {
				return tt.handle(nonce, c)
			}
			return ok(nonce, c)
		})
		res := run(t, Options{Targets: []string{url}, Rate: 2000, Duration: 100 * time.Millisecond, Connections: 4})
		if res.Counts.Requests != 200 || res.Counts.Errors[tt.kind] != 50 || res.Counts.Failed() != 50 {
			t.Errorf("%s: %+v, want 50 of 200", tt.kind, res.Counts)
		}
		if tt.status != 0 && tt.status != 200 && res.Counts.Statuses[tt.status] != 50 {
			t.Errorf("%s: statuses %v", tt.kind, res.Counts.Statuses)
		}
		if got := res.Latency.TotalCount(); got != 150 {
			t.Errorf("%s: %d latencies, want those of the 150 good responses", tt.kind, got)
		}
	}
}

func TestTimeouts(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	url := serve(t, func(n int64, nonce string, c net.Conn) bool {
		if n == 10 {
			<-never
		}
		return ok(nonce, c)
	})
	const timeout = time.Second
	res := run(t, Options{Targets: []string{url}, Rate: 1000, Duration: 50 * time.Millisecond, Timeout: timeout, Connections: 4})
	// A machine that stands still for the timeout may add more timeouts.
	late := res.Counts.Errors[ErrTimeout]
	if res.Counts.Requests != 50 || late < 1 || res.Counts.Failed() != late || res.Counts.Statuses[200] != 50-late {
		t.Fatalf("%+v, want a time-out among 50", res.Counts)
	}
	if got := res.Max(); got < timeout*99/100 || res.Latency.TotalCount() != 50 {
		t.Errorf("max %v of %d, want the time-out among 50", got, res.Latency.TotalCount())
	}
}

func TestConnectionClose(t *testing.T) {
	url := serve(t, func(_ int64, nonce string, c net.Conn) bool {
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nx-nonce: %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", nonce)
		return false
	})
	res := run(t, Options{Targets: []string{url}, Rate: 1000, Duration: 50 * time.Millisecond, Connections: 2, MaxConnections: 2})
	if res.Counts.Requests != 50 || res.Counts.Failed() != 0 || res.Connections != 50 {
		t.Errorf("%+v over %d connections, want 50 good ones over 50", res.Counts, res.Connections)
	}
}

func TestTargetsAndWarmup(t *testing.T) {
	var served [3]int64
	var urls []string
	var replicas []*replica.Replica
	for range served {
		r, err := replica.Start(replica.Options{Mode: replica.Fast})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close(context.Background())
		replicas = append(replicas, r)
		urls = append(urls, "http://"+r.Addr()+"/compute")
	}
	res := run(t, Options{Targets: urls, Rate: 1000, Warmup: 90 * time.Millisecond, Duration: 300 * time.Millisecond,
		Connections: 6, Poisson: true, Seed: 3})
	if res.Sent != 390 || res.Counts.Requests != 300 || res.Counts.Failed() != 0 {
		t.Errorf("sent %d, %+v; want 390 and 300", res.Sent, res.Counts)
	}
	for i, r := range replicas {
		if got := r.Stats().Served; got != 130 {
			t.Errorf("replica %d served %d, want 130", i, got)
		}
	}
}

func TestProgress(t *testing.T) {
	told := make(chan struct{})
	var once sync.Once
	url := serve(t, func(_ int64, nonce string, c net.Conn) bool {
		<-told
		return ok(nonce, c)
	})
	res := run(t, Options{Targets: []string{url}, Rate: 1000, Duration: 10 * time.Millisecond, Connections: 1,
		Progress: func(Progress) { once.Do(func() { close(told) }) }})
	if res.Counts.Requests != 10 || res.Counts.Failed() != 0 {
		t.Errorf("%+v, want 10 good ones", res.Counts)
	}
}

func TestClosedLoop(t *testing.T) {
	r, err := replica.Start(replica.Options{Mode: replica.Fast})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	res := run(t, Options{Targets: []string{"http://" + r.Addr() + "/compute"}, Closed: true,
		Warmup: 50 * time.Millisecond, Duration: 200 * time.Millisecond, Connections: 4})
	if served := r.Stats().Served; res.Sent != served || res.Sent == 0 || res.Counts.Requests > res.Sent || res.Counts.Failed() != 0 {
		t.Errorf("sent %d, counted %+v, served %d", res.Sent, res.Counts, served)
	}
	if res.Connections != 4 {
		t.Errorf("%d connections, want 4", res.Connections)
	}
}

func TestClosedLoopMinimum(t *testing.T) {
	url := serve(t, func(_ int64, nonce string, c net.Conn) bool { return ok(nonce, c) })
	res := run(t, Options{Targets: []string{url}, Closed: true, Requests: 1000, Duration: 1, Warmup: 1, Connections: 4})
	// Each connection may have sent one more.
	if n := res.Counts.Requests; n < 1000 || n > 1004 || res.Counts.Failed() != 0 {
		t.Errorf("%+v, want 1000 good ones", res.Counts)
	}
}

func TestCancel(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	for _, closed := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		url := serve(t, func(n int64, nonce string, c net.Conn) bool {
			if n == 2 {
				cancel()
			}
			<-never
			return false
		})
		res, err := Run(ctx, Options{Targets: []string{url}, Rate: 100, Closed: closed, Duration: time.Hour, Timeout: time.Hour, Connections: 2})
		// Requests that wait for a connection find none.
		if !errors.Is(err, ctx.Err()) || res == nil || res.Counts.Errors[ErrReset]+res.Counts.Errors[ErrConnect] != res.Counts.Requests {
			t.Errorf("closed %v: %v, %+v", closed, err, res)
		}
		cancel()
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {Targets: []string{"http://127.0.0.1:1/"}}, {Targets: []string{"127.0.0.1:1"}, Rate: 1},
		{Targets: []string{"https://127.0.0.1:1/"}, Rate: 1}, {Targets: []string{"http://127.0.0.1:1/"}, Rate: 2e6},
		{Targets: []string{"http://a/", "http://b/"}, Rate: 1, Connections: 1},
		{Targets: []string{"http://a/"}, Rate: 1, Timeout: -1},
		{Targets: []string{"grpc://"}, Rate: 1}, {Targets: []string{"grpc://127.0.0.1"}, Rate: 1},
	} {
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestServerIsDown(t *testing.T) {
	addr, release, err := freeport.Refusing()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := Run(context.Background(), Options{Targets: []string{"http://" + addr + "/"}, Rate: 10}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("err = %v", err)
	}
	res := run(t, Options{Targets: []string{"grpc://" + addr}, Rate: 1000, Duration: 20 * time.Millisecond}) // calls connect
	if res.Counts.Errors[ErrConnect] != 20 || res.Connections != 0 {
		t.Errorf("%+v, %d connections", res.Counts, res.Connections)
	}
}

func TestJSON(t *testing.T) {
	rec := recorder{sum: newResult()}
	start := time.Now()
	rec.begin(start)
	for i := range 1000 {
		rec.end(request{due: start}, start.Add(time.Duration(i+1)*time.Millisecond), outcome{status: 200})
	}
	rec.end(request{due: start.Add(2 * time.Second)}, start.Add(2*time.Second), outcome{kind: ErrReset})
	j, err := rec.result().JSON()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	json.Unmarshal(b, &got)
	for key, want := range map[string]float64{"requests": 1001, "errors": 1, "seconds": 2, "p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p999_ms": 999, "max_ms": 1000} {
		if v, ok := got[key].(float64); !ok || v < want*.998 || v > want*1.002 {
			t.Errorf("%s = %v, want %v", key, got[key], want)
		}
	}
	raw, err := base64.StdEncoding.DecodeString(j.Histogram)
	if err != nil {
		t.Fatal(err)
	}
	h, err := hdrhistogram.Decode(raw)
	if err != nil || h.TotalCount() != 1000 {
		t.Errorf("histogram: %v, %v", h, err)
	}
	last := -1.0
	for _, p := range j.Curve {
		if p.MS < last {
			t.Errorf("the curve falls at %v", p)
		}
		last = p.MS
	}
	if len(j.Curve) < 25 || j.Curve[len(j.Curve)-1].Quantile != 1 {
		t.Errorf("curve of %d points", len(j.Curve))
	}
}

func TestResultAdd(t *testing.T) {
	part := func(took time.Duration, kind ErrorKind) *Result {
		rec := recorder{sum: newResult()}
		rec.begin(time.Unix(0, 0))
		rec.sent(took / 2)
		rec.end(request{due: time.Unix(1, 0).Add(-took)}, time.Unix(1, 0), outcome{status: 200, kind: kind})
		r := rec.result()
		r.Sent, r.Connections = 2, 3
		return r
	}
	var sum Result
	sum.Add(part(4*time.Millisecond, ""))
	sum.Add(part(8*time.Millisecond, ErrTimeout))
	if sum.Sent != 4 || sum.Connections != 6 || sum.Elapsed != 2*time.Second || sum.Counts.Requests != 2 ||
		sum.Counts.Failed() != 1 || sum.Counts.Statuses[200] != 2 {
		t.Errorf("%+v", sum)
	}
	if sum.Latency.TotalCount() != 2 || sum.Max() < 7*time.Millisecond || sum.Quantile(.5) > 5*time.Millisecond || sum.Lag.TotalCount() != 2 {
		t.Errorf("latencies up to %v, half up to %v, %d of the generator", sum.Max(), sum.Quantile(.5), sum.Lag.TotalCount())
	}
}

// TestTLS: a load over TLS is like one in plain text.
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-nonce", r.Header.Get("x-nonce"))
	}))
	defer server.Close()
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	res, err := Run(t.Context(), Options{Targets: []string{server.URL + "/"}, TLS: config, Closed: true, Requests: 10, Connections: 2, Duration: time.Millisecond, Timeout: testTimeout})
	if err != nil || res.Counts.Requests < 10 || res.Counts.Failed() > 0 {
		t.Errorf("%v, %+v", err, res)
	}
	if _, err := Run(t.Context(), Options{Targets: []string{server.URL + "/"}, TLS: &tls.Config{}, Closed: true}); err == nil {
		t.Error("an unknown authority was accepted")
	}
}
