package race

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// settings are words of testdata/bouts.txt for settings of the service.
var settings = map[string]func(c *config.Service){
	"retries": retries,
	"tries": func(c *config.Service) {
		retries(c)
		c.Policy.Retry.PerTryTimeout = 20 * time.Millisecond
	},
	"hedges": func(c *config.Service) {
		retries(c)
		c.Policy.Hedge = config.Hedge{Mode: config.HedgeOn, Delay: "5ms", Budget: 1, Max: 2, Class: config.ClassNone}
	},
	"one slot": func(c *config.Service) {
		retries(c)
		c.MaxConcurrency = 1
	},
	"no queue": func(c *config.Service) { c.MaxQueue = 0 },
	"of link":  func(c *config.Service) { c.Protocol = config.ProtocolLink },
	"of dubbo": func(c *config.Service) { c.Protocol = config.ProtocolDubbo },
	"of http2": func(c *config.Service) { c.Protocol = config.ProtocolHTTP2 },
	"sticky":   func(c *config.Service) { c.LB.Sticky = config.Sticky{Cookie: "at", Secret: "0123456789abcdef"} },
	"rate":     func(c *config.Service) { c.RateLimit = config.RateLimit{Rate: 1, Burst: 1} },
	"breaker":  func(c *config.Service) { c.Breaker.Consecutive, c.Breaker.Open = 1, time.Second },
	"ejecting": func(c *config.Service) {
		c.Outlier.Consecutive, c.Outlier.Base, c.Outlier.MaxEjected = 1, time.Second, 1
	},
	"classes": func(c *config.Service) { c.Policy.Hedge.Class = "X-Tier" },
	"strict":  func(c *config.Service) { c.Outlier.Base = 10 * time.Millisecond },
	"probes":  func(c *config.Service) { c.Probe = config.ProbeOn },
}

func retries(c *config.Service) {
	c.Policy.Retry = config.Retry{Attempts: 2, On: []string{"connect", "refused", "reset", "503", "unavailable"}}
}

// entries are words for what the request and the endpoints are like.
var entries = map[string]func(b *bout, e *Entry){
	"once":      func(*bout, *Entry) {},                                           // the next request differs, since this one has taught something
	"probes":    func(b *bout, _ *Entry) { b.svc.Pick(b.svc.Query(0, nil), nil) }, // looks whether traffic is sparse
	"held":      func(b *bout, _ *Entry) { b.policy.HedgeRoute.Heads.Followed() },
	"hold":      func(_ *bout, e *Entry) { e.Hold = 10 * time.Millisecond },
	"gRPC":      func(b *bout, _ *Entry) { b.grpc = true },
	"full":      func(b *bout, _ *Entry) { b.svc.Admission.Admit(&b.other.Place, &service.Ask{}) },
	"lingering": func(b *bout, _ *Entry) { b.lingers = true },
	"telling":   func(b *bout, _ *Entry) { b.tells = true },
	"tier":      func(b *bout, _ *Entry) { b.header("x-tier", "gold") },
	"named":     func(_ *bout, e *Entry) { e.Class = []byte("silver") },
	"post": func(b *bout, _ *Entry) {
		b.req.Method = []byte("POST")
		b.header("content-type", "application/grpc")
	},
	"traced": func(b *bout, _ *Entry) {
		b.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		b.race.Traced.Trace[0] = 1
		b.req.Headers[len(b.req.Headers)-1] = b.race.Traced.Header()
		b.race.Traced.Carry(trace.SpanID{1})
	},
	"in a trace": func(b *bout, _ *Entry) {
		b.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	},
	"state":                    func(b *bout, _ *Entry) { b.header("tracestate", "other=1"); b.header("tracestate", "more=2") },
	"timed":                    func(b *bout, _ *Entry) { b.req.Timed = true },
	"batch header":             func(b *bout, e *Entry) { b.req.Batch, e.Batch = true, true },
	"64 KiB":                   func(b *bout, _ *Entry) { b.req.Body = make([]byte, replacedBody) },
	"more than 64 KiB":         func(b *bout, _ *Entry) { b.req.Body = make([]byte, replacedBody+1) },
	"no consent":               func(b *bout, _ *Entry) { b.req.Idempotent = false },
	"batch":                    func(_ *bout, e *Entry) { e.Batch = true },
	"pinned":                   func(b *bout, e *Entry) { e.Pin = b.svc.Set.At(1) },
	"no hedges":                func(_ *bout, e *Entry) { e.NoHedge = true },
	"keyed":                    func(_ *bout, e *Entry) { e.Keyed = true },
	"retry of the caller":      func(_ *bout, e *Entry) { e.CallerAttempt = 1 },
	"hedge of the caller":      func(_ *bout, e *Entry) { e.CallerHedged = true },
	"tied hedge of the caller": func(_ *bout, e *Entry) { e.CallerHedged, e.Tied = true, true },
}

func (b *bout) header(name, value string) {
	b.req.Headers = append(b.req.Headers, protocol.Header{Name: []byte(name), Value: []byte(value)})
}

var update = flag.Bool("update", false, "write testdata/bouts.txt anew")

// begin begins a request, or gets ready for a stream, that words describe.
func (b *bout) begin(t *testing.T, words []string, request bool) {
	change := func(e *Entry) {
		for _, word := range words {
			if of := entries[word]; of != nil {
				of(b, e)
			} else if settings[word] == nil {
				t.Errorf("no word %q", word)
			}
		}
	}
	if request {
		b.start(change)
	} else {
		b.events, b.addrs = nil, nil
		b.do(func() {
			b.began = b.loop.Now()
			change(nil)
		})
	}
}

// TestBouts: what becomes of the attempts of a request, and what is counted of them. Each part of testdata/bouts.txt has a name, what
// the service and the request are like, a script, and then what the endpoints and the owner are told, the spans, and the counts.
func TestBouts(t *testing.T) {
	const path = "testdata/bouts.txt"
	parts := strings.Split(strings.TrimSpace(string(must.ReadFile(t, path))), "\n\n")
	for i, part := range parts {
		lines := append(strings.SplitN(part, "\n", 4), "")
		name, like, script, want := strings.TrimPrefix(lines[0], "# "), strings.Split(lines[1], ", "), lines[2], lines[3]
		t.Run(name, func(t *testing.T) {
			b := newBout(t, int(like[0][0]-'0'), func(c *config.Service) {
				for _, word := range like {
					if change := settings[word]; change != nil {
						change(c)
					}
				}
			})
			like = like[1:]
			request := !strings.HasPrefix(script, "open")
			b.begin(t, like, request)
			b.play(script)
			got, told := b.String(), b.told()
			if got != want && !*update {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			b.checkEnd()
			if request && !slices.Contains(like, "once") {
				b.begin(t, like, request)
				b.play(script)
				if again := b.told(); !slices.Equal(again, told) {
					t.Errorf("the next request is told\n%s\nand not\n%s", strings.Join(again, "\n"), strings.Join(told, "\n"))
				}
				b.checkEnd()
			}
			parts[i] = strings.Join([]string{lines[0], lines[1], lines[2], got}, "\n")
		})
	}
	if *update {
		must.WriteFile(t, path, strings.Join(parts, "\n\n")+"\n")
	}
}
