package load

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

func TestLog(t *testing.T) {
	var mu sync.Mutex
	var sent []string
	url := serve(t, func(n int64, nonce string, c net.Conn) bool {
		if n > 10 {
			mu.Lock()
			sent = append(sent, nonce)
			mu.Unlock()
		}
		switch {
		case n <= 10: // of the warm-up
			return ok(nonce, c)
		case n == 12:
			_, err := io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nx-remora-error: upstream-reset\r\ncontent-length: 0\r\n\r\n")
			return err == nil
		case n == 13:
			_, err := io.WriteString(c, "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")
			return err == nil
		}
		return n != 14 && ok(nonce, c)
	})
	var log strings.Builder
	before := time.Now()
	run(t, Options{Targets: []string{url}, Rate: 100, Warmup: 100 * time.Millisecond, Duration: 50 * time.Millisecond,
		Connections: 1, MaxConnections: 1, Log: &log})
	var ends, nonces []string
	for line := range strings.Lines(log.String()) {
		var due, latency, waited int64
		var end struct{ status, kind, code, nonce string }
		if _, err := fmt.Sscan(line, &due, &latency, &end.status, &end.kind, &end.code, &end.nonce, &waited); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if due < before.UnixMicro() || due+latency > time.Now().UnixMicro() || latency < 0 {
			t.Errorf("%q: not within the run", line)
		}
		if waited < 0 || waited > latency {
			t.Errorf("%q: sent after %d µs", line, waited)
		}
		nonces = append(nonces, end.nonce)
		ends = append(ends, end.status+" "+end.kind+" "+end.code)
	}
	want := []string{"200 - -", "502 status upstream-reset", "500 status -", "0 reset -", "200 - -"}
	if !slices.Equal(ends, want) {
		t.Errorf("ends %q, want %q", ends, want)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(nonces, sent) {
		t.Errorf("nonces %q, want %q", nonces, sent)
	}
}

// TestLogNeverSent: a request that found no connection has no time of sending.
func TestLogNeverSent(t *testing.T) {
	var log strings.Builder
	rec := recorder{log: &log, sum: newResult()}
	due := time.Unix(1, 0)
	rec.end(request{due: due, nonce: 0xab}, due.Add(time.Second), outcome{kind: ErrConnect})
	if want := "1000000 1000000 0 connect - 00000000000000ab -1\n"; log.String() != want {
		t.Errorf("%q, want %q", log.String(), want)
	}
}

// TestStray: of two connections the one without a request gets a response.
func TestStray(t *testing.T) {
	ln := must.Listen(t)
	go func() {
		var conns [2]net.Conn
		began := make(chan int, len(conns))
		for i := range conns {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns[i] = c
			go func() {
				if _, err := c.Read(make([]byte, 1)); err == nil {
					began <- i
				}
			}()
		}
		busy := <-began
		idle := conns[1-busy]
		ok("0", idle)
		_, _ = io.Copy(io.Discard, idle) // until the client closes it
		conns[busy].Close()
	}()
	var log strings.Builder
	res := run(t, Options{Targets: []string{"http://" + ln.Addr().String()}, Rate: 1, Duration: time.Second,
		Connections: 2, MaxConnections: 2, Log: &log})
	if c := res.Counts; c.Requests != 1 || c.Errors[ErrStray] != 1 || c.Errors[ErrReset] != 1 {
		t.Errorf("%+v, want a stray response and a request without one", c)
	}
	if !strings.Contains(log.String(), " 0 0 stray - 0000000000000000 -1\n") {
		t.Errorf("log %q", log.String())
	}
}
