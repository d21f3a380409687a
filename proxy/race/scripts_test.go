package race

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/scripttest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// settings are words of testdata/races.txt for settings of the service.
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
	"shadow": func(c *config.Service) {
		const second = 10 * time.Millisecond // the delay that is forecast beside the one in force
		c.Policy.Hedge = config.Hedge{
			Mode: config.HedgeShadow, Delay: "5ms", MinDelay: second, MaxDelay: second, Budget: 1, Max: 2, Class: config.ClassNone,
		}
	},
	"small budget": func(c *config.Service) { c.Policy.Hedge.Budget = 0.01 },
	"quick tries":  func(c *config.Service) { c.Policy.Retry.PerTryTimeout = 10 * time.Millisecond },
	"automatic":    func(c *config.Service) { c.MaxConcurrency = config.MaxConcurrencyAuto },
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
var entries = map[string]func(s *scriptedRace, e *Entry){
	"once":      func(*scriptedRace, *Entry) {},                                           // the next request differs, since this one has taught something
	"probes":    func(s *scriptedRace, _ *Entry) { s.svc.Pick(s.svc.Query(0, nil), nil) }, // looks whether traffic is sparse
	"held":      func(s *scriptedRace, _ *Entry) { s.policy.HedgeRoute.Heads.Followed() },
	"hold long": func(_ *scriptedRace, e *Entry) { e.Hold = time.Second },
	"short":     func(s *scriptedRace, _ *Entry) { s.req.Deadline = s.began + 8*time.Millisecond },
	"known classes": func(s *scriptedRace, _ *Entry) {
		for range 100 { // until the route has classes
			s.policy.HedgeRoute.Latencies.ClassOf(s.loop.Now(), []byte("other"), 0)
		}
	},
	"poor": func(s *scriptedRace, _ *Entry) {
		for s.svc.Hedging.Retry(s.loop.Now()) {
		}
	},
	"hold": func(_ *scriptedRace, e *Entry) { e.Hold = 10 * time.Millisecond },
	"gRPC": func(s *scriptedRace, _ *Entry) { s.grpc = true },
	"full": func(s *scriptedRace, _ *Entry) {
		if !s.other.HasSlot() {
			s.svc.Admission.Admit(&s.other.Place, &service.Ask{})
		}
	},
	"passing":                  func(s *scriptedRace, _ *Entry) { s.svc.Bounds.Pass(&s.passage, s.loop.Now(), false, s) },
	"lingering":                func(s *scriptedRace, _ *Entry) { s.lingers = true },
	"telling":                  func(s *scriptedRace, _ *Entry) { s.tells = allTell },
	"first tells":              func(s *scriptedRace, _ *Entry) { s.tells = firstTells },
	"others tell":              func(s *scriptedRace, _ *Entry) { s.tells = othersTell },
	"late retry of the caller": func(_ *scriptedRace, e *Entry) { e.CallerAttempt = 12 },
	"gRPC header":              func(s *scriptedRace, _ *Entry) { s.header("content-type", "application/grpc") },
	"tier":                     func(s *scriptedRace, _ *Entry) { s.header("x-tier", "gold") },
	"named":                    func(_ *scriptedRace, e *Entry) { e.Class = []byte("silver") },
	"post": func(s *scriptedRace, _ *Entry) {
		s.req.Method = []byte("POST")
		s.header("content-type", "application/grpc")
	},
	"traced": func(s *scriptedRace, _ *Entry) {
		s.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		s.race.Traced.Trace[0] = 1
		s.req.Headers[len(s.req.Headers)-1] = s.race.Traced.Header()
		s.race.Traced.Carry(trace.SpanID{1})
	},
	"in a trace": func(s *scriptedRace, _ *Entry) {
		s.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	},
	"state":                    func(s *scriptedRace, _ *Entry) { s.header("tracestate", "other=1"); s.header("tracestate", "more=2") },
	"timed":                    func(s *scriptedRace, _ *Entry) { s.req.Timed = true },
	"batch header":             func(s *scriptedRace, e *Entry) { s.req.Batch, e.Batch = true, true },
	"64 KiB":                   func(s *scriptedRace, _ *Entry) { s.req.Body = make([]byte, replacedBody) },
	"more than 64 KiB":         func(s *scriptedRace, _ *Entry) { s.req.Body = make([]byte, replacedBody+1) },
	"no consent":               func(s *scriptedRace, _ *Entry) { s.req.Idempotent = false },
	"batch":                    func(_ *scriptedRace, e *Entry) { e.Batch = true },
	"pinned":                   func(s *scriptedRace, e *Entry) { e.Pin = s.svc.Set.At(1) },
	"no hedges":                func(_ *scriptedRace, e *Entry) { e.NoHedge = true },
	"keyed":                    func(_ *scriptedRace, e *Entry) { e.Keyed = true },
	"retry of the caller":      func(_ *scriptedRace, e *Entry) { e.CallerAttempt = 1 },
	"hedge of the caller":      func(_ *scriptedRace, e *Entry) { e.CallerHedged = true },
	"tied hedge of the caller": func(_ *scriptedRace, e *Entry) { e.CallerHedged, e.Tied = true, true },
}

func (s *scriptedRace) header(name, value string) {
	s.req.Headers = append(s.req.Headers, protocol.Header{Name: []byte(name), Value: []byte(value)})
}

// next begins the next request once the last one is over.
func (s *scriptedRace) next(p *scripttest.Part, words ...string) {
	s.do(s.race.Reset)
	noted := s.events
	s.begin(p, words...)
	s.events = append(noted, s.events...)
}

// begin begins a request, or gets ready for a stream, that the words of a part describe, and more words.
func (s *scriptedRace) begin(p *scripttest.Part, more ...string) {
	change := func(e *Entry) {
		for _, word := range slices.Concat(p.Words[1:], more) {
			if settings[word] == nil {
				scripttest.Find(s.t, entries, word)(s, e)
			} else if change := entries[word]; change != nil {
				change(s, e)
			}
		}
	}
	if !p.Starts("open") {
		s.start(change)
		return
	}
	s.events, s.addrs = nil, nil
	s.do(func() {
		s.began = s.loop.Now()
		change(nil)
	})
}

// endpoints returns the number of endpoints that the first word of a part tells.
func endpoints(t *testing.T, p *scripttest.Part) int {
	number, unit, _ := strings.Cut(p.Words[0], " ")
	n, err := strconv.Atoi(number)
	if err != nil || strings.TrimSuffix(unit, "s") != "endpoint" {
		t.Fatalf("%q is no number of endpoints", p.Words[0])
	}
	return n
}

// TestScripts: what becomes of the attempts of a request, and what is counted of them. Each part of testdata/races.txt has a name, then
// what the service and the request are like, then what endpoints and the caller do, and then what the endpoints and the owner of the race
// see, the spans, and the counts that are not 0. The next request has the same outcome, unless the service has learned from the first one.
func TestScripts(t *testing.T) {
	scripttest.Run(t, "testdata/races.txt", func(t *testing.T, p *scripttest.Part) string {
		s := newScriptedRace(t, endpoints(t, p), func(c *config.Service) {
			for _, word := range p.Words {
				if change := settings[word]; change != nil {
					change(c)
				}
			}
		})
		s.begin(p)
		s.take(p)
		got, first := s.outcome(), s.noted()
		s.checkEnd()
		if !p.Starts("open") && !slices.Contains(p.Words, "once") {
			s.begin(p)
			s.take(p)
			if second := s.noted(); !slices.Equal(second, first) {
				t.Errorf("the next request has\n%s\nand not\n%s", strings.Join(second, "\n"), strings.Join(first, "\n"))
			}
			s.checkEnd()
		}
		return got
	})
}
