package exchange

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// line is what a test reads of an access line.
type line struct {
	Time, Listener, Protocol, Stream, Service, Outcome, Error, Method, Authority, Path string
	Status                                                                             int
	RequestID                                                                          string `json:"request_id"`
	TraceID                                                                            string `json:"trace_id"`
	BytesIn                                                                            int    `json:"bytes_in"`
}

// linesOf returns the access lines of what do does on a loop with these rules.
func linesOf(t *testing.T, rules *config.AccessLog, do func(w *shard.Shard)) (lines []line) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	q := accesslog.NewQueue(1<<20, 1, &accesslog.Counts{})
	out, err := accesslog.Open(path, q, nil)
	if err != nil {
		t.Fatal(err)
	}
	onLoop(func(w *shard.Shard) {
		w.Process.WallClock = func() time.Time { return time.Unix(7, 0).UTC() }
		w.AccessLog.Configure(rules, q)
		do(w)
	})
	if err := out.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(must.ReadFile(t, path))) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		lines = append(lines, l)
	}
	return lines
}

// changed returns an exchange whose host and path the route has changed, of a client that has sent an id and a trace.
func changed(w *shard.Shard, at *Listener) *Exchange {
	ex := NewPool(w).Exchange(peer{at: at})
	ex.HeadBuffer = w.Buffers.Get(100)
	ex.HeadBuffer.B = append(ex.HeadBuffer.B, "GET / HTTP/1.1"...)
	ex.Request.Method, ex.Request.Authority, ex.Request.Path = []byte("GET"), []byte("b"), []byte("/v2")
	ex.OriginalHost, ex.OriginalPath, ex.RequestID = []byte("a"), []byte("/v1"), []byte("id")
	ex.Request.Headers = []protocol.Header{{Name: []byte("traceparent"), Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}}
	return ex
}

// TestLinesOutsideExchanges: the lines of streams, and of requests that never begin, say what the client has sent.
func TestLinesOutsideExchanges(t *testing.T) {
	const clock = "1970-01-01T00:00:07.000000Z"
	at := &Listener{Name: "in", Protocol: "http"}
	sent := line{Time: clock, Listener: "in", Protocol: "http", Method: "GET", Authority: "a", Path: "/v1", RequestID: "id", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"}
	unread := line{Time: clock, Listener: "in", Protocol: "http"}
	refused := func(l line, size int) line {
		l.Outcome, l.Status, l.Error, l.BytesIn = "failed", fault.BadPath.Status, fault.BadPath.Code, size
		return l
	}
	stream := func(l line) line {
		l.Stream, l.Service, l.Outcome = "upload", "s", "closed"
		return l
	}
	for name, c := range map[string]struct {
		do   func(w *shard.Shard, ex *Exchange)
		read bool
		want line
	}{
		"refused":             {func(w *shard.Shard, ex *Exchange) { RecordRefused(w, peer{at: at}, ex, fault.BadPath) }, true, refused(sent, 14)},
		"refused before read": {func(w *shard.Shard, ex *Exchange) { RecordRefused(w, peer{at: at}, ex, fault.BadPath) }, false, refused(unread, 0)},
		"stream": {func(w *shard.Shard, ex *Exchange) {
			LogStream(&w.AccessLog, "upload", peer{at: at}, ex, "s").End(accesslog.StreamEnd{})
		}, true, stream(sent)},
		"stream before read": {func(w *shard.Shard, ex *Exchange) {
			LogStream(&w.AccessLog, "upload", peer{at: at}, ex, "s").End(accesslog.StreamEnd{})
		}, false, stream(unread)},
	} {
		for sample, most := range map[float64]int{1: 1, 0: 0} {
			got := linesOf(t, &config.AccessLog{Sample: sample}, func(w *shard.Shard) {
				var ex *Exchange
				if c.read {
					ex = changed(w, at)
				}
				c.do(w, ex)
			})
			if len(got) != most || most == 1 && got[0] != c.want {
				t.Errorf("%s, a sample of %v:\n%+v, want\n%+v", name, sample, got, c.want)
			}
		}
	}
	for _, c := range []struct {
		rules config.AccessLog
		want  int
	}{{config.AccessLog{Failed: true}, 1}, {config.AccessLog{Slow: 1}, 0}} {
		got := linesOf(t, &c.rules, func(w *shard.Shard) { RecordRefused(w, peer{at: at}, nil, fault.BadPath) })
		if len(got) != c.want {
			t.Errorf("%+v: a request that is refused at once has the lines %+v", c.rules, got)
		}
	}
	onLoop(func(w *shard.Shard) {
		if LogStream(&w.AccessLog, "upload", peer{at: at}, nil, "s") != nil {
			t.Error("a stream has a line, and there is no access log")
		}
		began := w.Loop.Now()
		RecordRefused(w, peer{at: at}, changed(w, at), fault.BadPath)
		RecordRefused(w, peer{at: at}, nil, fault.BadPath)
		if ms := w.Milliseconds.Now(began); ms.Arrivals != 2 || ms.Answers != 2 || ms.BytesIn != 14 || ms.BytesOut != 0 {
			t.Errorf("the millisecond has %+v", ms)
		}
		if n := w.Stats.Errors.Of(fault.BadPath.Code); n != 2 || w.Stats.Unrouted["in"] != 2 {
			t.Errorf("%d failures, %d without a route", n, w.Stats.Unrouted["in"])
		}
	})
}
