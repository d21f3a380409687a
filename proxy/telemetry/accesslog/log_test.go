package accesslog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// still is a Loop that runs what is posted at once, and keeps the timer.
type still struct {
	loop.Loop
	timer *loop.Timer
	after time.Duration
}

func (s *still) Post(do func())                       { do() }
func (s *still) After(d time.Duration, t *loop.Timer) { s.after, s.timer = d, t }

// newLog returns a log with these rules, whose time of day is *now.
func newLog(rules *config.AccessLog, now *time.Time) (*Log, *still, *Queue) {
	l, on := &Log{}, &still{}
	l.Init(on, func() time.Time { return *now }, rand.NewPCG(1, 2))
	q := NewQueue(1<<20, 1, &Counts{})
	l.Configure(rules, q)
	return l, on, q
}

// written returns what was passed to the queue since the last time.
func written(l *Log, q *Queue) string {
	l.Flush()
	text := ""
	for {
		select {
		case b := <-q.full:
			text += string(b.b[1:])
			q.free <- b
		default:
			return text
		}
	}
}

// TestKeeps: which requests have a line. A sample is chosen by the id, and at random without one.
func TestKeeps(t *testing.T) {
	const slow = 10 * time.Millisecond
	for _, c := range []struct {
		rules  config.AccessLog
		failed bool
		took   time.Duration
		want   float64 // share of the requests
	}{
		{config.AccessLog{Sample: 1}, false, 0, 1},
		{config.AccessLog{Failed: true}, true, 0, 1},
		{config.AccessLog{Failed: true}, false, time.Hour, 0},
		{config.AccessLog{Slow: slow}, false, slow, 1},
		{config.AccessLog{Slow: slow}, true, slow - 1, 0},
		{config.AccessLog{Slow: 1}, false, 1, 1},
		{config.AccessLog{Sample: 0.25}, true, time.Hour, 0.25},
		{config.AccessLog{Sample: 0.25, Slow: slow}, false, slow - 1, 0.25},
	} {
		for _, hasID := range []bool{true, false} {
			var now time.Time
			l, _, _ := newLog(&c.rules, &now)
			again, _, _ := newLog(&c.rules, &now)
			const requests = 10_000
			kept := 0
			for i := range requests {
				var id []byte
				if hasID {
					id = fmt.Append(nil, "id ", i)
				}
				keeps := l.Keeps(c.failed, c.took, id)
				if keeps {
					kept++
				}
				if hasID && again.Keeps(c.failed, c.took, id) != keeps {
					t.Errorf("%+v: another sidecar decides otherwise about request %d", c, i)
				}
			}
			if share := float64(kept) / requests; share < 0.95*c.want || share > 1.05*c.want {
				t.Errorf("%+v, with ids %t: %d of %d", c, hasID, kept, requests)
			}
		}
	}
}

// TestKeepsBound: the share is the first fraction that is not kept, so that each share of 1/2⁵³ has its fractions.
func TestKeepsBound(t *testing.T) {
	id := []byte("id")
	var now time.Time
	l, _, _ := newLog(&config.AccessLog{}, &now)
	next := *l.rnd
	for _, c := range []struct {
		id       []byte
		fraction float64
	}{{id, fractionOf(hash(id))}, {nil, fractionOf(next.Uint64())}} {
		before := *l.rnd
		for _, more := range []float64{0, 1. / (1 << 53)} {
			*l.rnd = before
			l.rules = &config.AccessLog{Sample: c.fraction + more}
			if got := l.Keeps(false, 0, c.id); got != (more > 0) {
				t.Errorf("id %q, with a share of %v, %v more than the fraction: %t", c.id, l.rules.Sample, more, got)
			}
		}
	}
}

// TestFlushAfter: the first line of a batch is written soon, and with it those that follow. Without a queue nothing is.
func TestFlushAfter(t *testing.T) {
	var now time.Time
	l, on, q := newLog(&config.AccessLog{Sample: 1}, &now)
	l.Add(&Record{Listener: "a"})
	armed := on.timer
	on.timer = nil
	if l.Add(&Record{Listener: "b"}); on.timer != nil || armed == nil || on.after != flushAfter || len(q.full) != 0 {
		t.Fatalf("armed %t, then %t, for %v; %d batches", armed != nil, on.timer != nil, on.after, len(q.full))
	}
	armed.Fire()
	if text := written(l, q); strings.Count(text, "\n") != 2 || !strings.Contains(text, `"listener":"b"`) {
		t.Errorf("written %q", text)
	}
	if l.Configure(&config.AccessLog{}, nil); l.On() {
		t.Error("on without a queue")
	}
}

// TestStreamEnds: what the line of a stream says of its end.
func TestStreamEnds(t *testing.T) {
	const since = 1500 * time.Millisecond
	for name, c := range map[string]struct {
		begin Record
		end   StreamEnd
		want  string // parts of the line
	}{
		"a response":             {Record{}, StreamEnd{Status: 201, Endpoint: "10.0.0.1:1", In: 3, Out: 4}, `"outcome":"2xx" "status":201 "endpoint":"10.0.0.1:1" "attempts":1 "bytes_in":3 "bytes_out":4`},
		"a response before":      {Record{Status: 302, Endpoint: "e", Attempts: 2, BytesIn: 1}, StreamEnd{In: 3}, `"outcome":"3xx" "status":302 "endpoint":"e" "attempts":2 "bytes_in":4`},
		"several attempts":       {Record{Attempts: 2}, StreamEnd{Status: 500, Endpoint: "e"}, `"outcome":"5xx" "attempts":2`},
		"no response":            {Record{}, StreamEnd{}, `"outcome":"closed" "status":0 "attempts":0`},
		"cut":                    {Record{}, StreamEnd{Status: 200, Cut: true, Failure: fault.Reset}, `"outcome":"cut" "status":200`},
		"refused":                {Record{}, StreamEnd{Failure: fault.NoRoute}, `"outcome":"failed" "status":404 "error":"no-route"`},
		"a call":                 {Record{}, StreamEnd{Status: 200, GRPC: true, Code: protocol.GRPCUnavailable}, `"outcome":"5xx" "status":200 "grpc_status":"unavailable"`},
		"a call without success": {Record{}, StreamEnd{Status: 404, GRPC: true, Code: protocol.GRPCUnavailable}, `"outcome":"4xx" "status":404`},
	} {
		now := time.Unix(100, 0)
		l, _, q := newLog(&config.AccessLog{Sample: 1}, &now)
		c.begin.Time = now
		s := l.Stream(&c.begin)
		now = now.Add(since)
		s.End(c.end)
		text := written(l, q)
		for _, part := range strings.Fields(c.want + ` "duration_ms":1500.000`) {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %s in %s", name, part, text)
			}
		}
		if strings.Count(c.want, `"error"`) != strings.Count(text, `"error"`) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestStreamsKept: a stream that failed is logged as such, also without a sample. One that was cut, that succeeded or that ended after the log
// was switched off is not.
func TestStreamsKept(t *testing.T) {
	now := time.Unix(100, 0)
	l, _, q := newLog(&config.AccessLog{Failed: true}, &now)
	for name, c := range map[string]struct {
		end  StreamEnd
		kept bool
	}{
		"failed": {StreamEnd{Failure: fault.Connect}, true}, "5xx": {StreamEnd{Status: 502}, true},
		"4xx": {StreamEnd{Status: 404}, false}, "closed": {StreamEnd{}, false}, "cut": {StreamEnd{Status: 500, Cut: true, Failure: fault.Reset}, false},
	} {
		l.Stream(&Record{}).End(c.end)
		if text := written(l, q); (text != "") != c.kept {
			t.Errorf("%s: %q", name, text)
		}
	}
	s := l.Stream(&Record{})
	if l.Configure(&config.AccessLog{Failed: true}, nil); s != nil {
		s.End(StreamEnd{Status: 500})
	}
	if len(q.full) != 0 {
		t.Error("a line after the log was switched off")
	}
	var none *StreamRecord
	none.SetRequest(stats.StreamBody, &protocol.Request{})
	none.End(StreamEnd{})
}

// TestStreamRequest: a stream of bytes has no status, and a request that becomes known later is copied.
func TestStreamRequest(t *testing.T) {
	var now time.Time // there is no clock
	l, _, q := newLog(&config.AccessLog{Sample: 1}, &now)
	s := l.OpaqueStream("in", "10.0.0.2:1", "mail")
	s.End(StreamEnd{Failure: fault.Connect})
	want := map[string]any{"listener": "in", "client": "10.0.0.2:1", "service": "mail", "protocol": "tcp", "stream": "opaque", "status": 0.0, "outcome": "failed"}
	check := func(want map[string]any) {
		t.Helper()
		text, got := written(l, q), map[string]any{}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%s is %v, want %v", key, got[key], value)
			}
		}
		if got["time"] != nil || got["duration_ms"] != 0.0 {
			t.Errorf("without a clock: %s", text)
		}
	}
	check(want)

	path := []byte("/first")
	s = l.Stream(&Record{Request: Request{Path: path}})
	clear(path)
	s.End(StreamEnd{Status: 200})
	check(map[string]any{"path": "/first", "status": 200.0})

	req := &protocol.Request{Method: []byte("PUT"), Authority: []byte("a"), Path: []byte("/p"), Headers: []protocol.Header{
		{Name: []byte("X-Request-ID"), Value: []byte("7")},
		{Name: []byte("traceparent"), Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")},
	}}
	s = l.Stream(&Record{Stream: "accepted"})
	s.SetRequest(stats.StreamConnect, req)
	for _, text := range [][]byte{req.Method, req.Authority, req.Path, req.Headers[0].Value, req.Headers[1].Value} {
		clear(text)
	}
	s.End(StreamEnd{Status: 200})
	check(map[string]any{
		"stream": "connect", "method": "PUT", "authority": "a", "path": "/p", "request_id": "7", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
	})
	if got := l.Wall(time.Second); !got.IsZero() {
		t.Errorf("without a clock it is %v", got)
	}
	now = time.Unix(100, 0)
	if got := l.Wall(time.Second); !got.Equal(time.Unix(99, 0)) {
		t.Errorf("a second ago it was %v", got)
	}
}
