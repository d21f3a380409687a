package exchange

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/scripttest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// serviceWords are words of testdata/exchanges.txt for settings of the service.
var serviceWords = map[string]func(c *config.Service){
	"retries": func(c *config.Service) {
		c.Policy.Retry = config.Retry{Attempts: 2, On: []string{"connect", "reset", "503"}}
	},
	"hedge":       func(c *config.Service) { c.Policy.Hedge.Mode, c.Policy.Hedge.Delay = config.HedgeOn, "2ms" },
	"try timeout": func(c *config.Service) { c.Policy.Retry.PerTryTimeout = 10 * time.Millisecond },
	"no place":    func(c *config.Service) { c.MaxPending = 0 },
	"one place":   func(c *config.Service) { c.MaxPending = 1 },
	"breaker":     func(c *config.Service) { c.Breaker.Consecutive, c.Breaker.Open = 1, time.Second },
	"sticky":      func(c *config.Service) { c.LB.Sticky = config.Sticky{Cookie: "at", Secret: "0123456789abcdef"} },
	"session": func(c *config.Service) {
		c.LB.Policy, c.LB.Hash = config.LBConsistentHash, config.Hash{Cookie: "sid", TTL: time.Hour}
	},
	"one slot":   func(c *config.Service) { c.MaxConcurrency = 1 },
	"batch":      func(c *config.Service) { c.Policy.Priority = config.PriorityBatch },
	"idempotent": func(c *config.Service) { c.Policy.Idempotent = []string{config.IdempotentTrue} },
}

// requestWords are words for the listener, the route, the request and its caller.
var requestWords = map[string]func(s *scriptedExchange){
	"sidecar":  func(s *scriptedExchange) { s.at.Sidecars, s.at.Protocol = true, "link" },
	"no route": func(s *scriptedExchange) { s.route = nil },
	"an answer": func(s *scriptedExchange) {
		s.route = NewRoute(&route.Plan{Match: &config.Match{}, Route: &config.Route{Respond: config.Respond{Status: 222}}, Policy: &config.Policy{Timeout: time.Second}}, nil)
	},
	"a copy":            func(s *scriptedExchange) { s.at.copies = true },
	"a route of copies": func(s *scriptedExchange) { s.route = NewCopyRoute(s.svc) },
	"refused":           func(s *scriptedExchange) { s.ex.RefuseLater(fault.BadPath); s.ex.RefuseLater(fault.Loop) },
	"a login":           func(s *scriptedExchange) { s.ex.NoteLogin(protocol.LoginOnce) },
	"steps":             func(s *scriptedExchange) { s.ex.NoteLogin(protocol.LoginSteps) },
	"no login":          func(s *scriptedExchange) { s.ex.NoteLogin(protocol.NoLogin) },
	"100 ms":            func(s *scriptedExchange) { s.ex.SetTimeout(100 * time.Millisecond) },
	"no time":           func(s *scriptedExchange) { s.ex.SetTimeout(0) },
	"gRPC":              func(s *scriptedExchange) { s.header("content-type", "application/grpc") },
	"traced": func(s *scriptedExchange) {
		s.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	},
	"not sampled": func(s *scriptedExchange) {
		s.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
	},
	"sampling":    func(s *scriptedExchange) { s.shard.Sampler.Configure(&config.Tracing{Endpoint: "x", Sample: 1}) },
	"no sink":     func(s *scriptedExchange) { s.shard.Process.Sink = nil },
	"request id":  func(s *scriptedExchange) { s.header("x-request-id", "id1") },
	"dubbo":       func(s *scriptedExchange) { s.ex.Request.Codec = dubbo.CodecHessian2 },
	"PUT":         func(s *scriptedExchange) { s.ex.Request.Method = []byte("PUT") },
	"rewritten":   func(s *scriptedExchange) { s.ex.OriginalPath, s.ex.OriginalHost = []byte("/before"), []byte("other") },
	"lingering":   func(s *scriptedExchange) { s.lingers = true },
	"unencodable": func(s *scriptedExchange) { s.refuses = fault.Malformed },
	"over share":  func(s *scriptedExchange) { s.share = true },
	"short memory": func(s *scriptedExchange) {
		s.shard.Process.Budget.Configure(&config.Limits{Buffered: 1 << 20})
		s.shard.Recount(&s.others, 2<<20)
	},
	"late clock": func(s *scriptedExchange) {
		s.shard.Process.WallClock = func() time.Time { return time.Unix(100, 0).UTC().Add(s.loop.Now()) }
	},
	"a reader": func(s *scriptedExchange) { s.reads = true },
	"slow lines": func(s *scriptedExchange) {
		rules := s.rules
		rules.Sample, rules.Slow = 0, 6*time.Millisecond
		s.shard.AccessLog.Configure(&rules, s.queue)
	},
	"tier": func(s *scriptedExchange) { s.header("x-tier", "gold") },
	"body": func(s *scriptedExchange) {
		s.ex.BodyBuffer = s.shard.Buffers.GetRoom(50)
		s.ex.BodyBuffer.B = append(s.ex.BodyBuffer.B, "body"...)
		s.ex.Charge()
	},
	"injected":            func(s *scriptedExchange) { s.ex.Injected, s.ex.Cached = stats.InjectedDelay, stats.CacheMiss },
	"full":                func(s *scriptedExchange) { s.svc.Admission.Admit(&s.other.Place, &service.Ask{}) },
	"tied":                func(s *scriptedExchange) { s.ex.Request.Tied, s.ex.Request.Hedge = true, true },
	"batch of the caller": func(s *scriptedExchange) { s.ex.Request.Batch = true },
	"bad trace":           func(s *scriptedExchange) { s.header("traceparent", "00-0"); s.header("tracestate", "a=b") },
	"a pin": func(s *scriptedExchange) {
		s.header("cookie", "at="+s.svc.Sessions.Sticky.ID("192.0.2.1:1"))
	},
	"GET": none,
	// Filters.
	"seeing": none, "holding": none, "refusing": none, "answering": none, "watching": none, "replacing": none, "keeping": none, "storing": none, "early": none, "stored": none,
}

// none is of words that something else looks at.
func none(*scriptedExchange) {}

func (s *scriptedExchange) header(name, value string) {
	s.ex.Request.Headers = append(s.ex.Request.Headers, protocol.Header{Name: []byte(name), Value: []byte(value)})
}

// filters returns the filters that words name.
func (s *scriptedExchange) filters(words []string) (all []Filter) {
	for _, word := range words {
		switch f := (scriptedFilter{s, word}); word {
		case "seeing", "holding", "refusing", "answering":
			all = append(all, f)
		case "watching", "replacing", "keeping", "storing":
			all = append(all, scriptedOutcomeFilter{f})
		case "early", "stored":
			all = append(all, scriptedEarlyFilter{f})
		}
	}
	return all
}

// TestScripts: what becomes of a request. Each part of testdata/exchanges.txt has a name, then what the request, its route and the service
// are like, then what the endpoint, filters and the caller do, and then what these see, the line of the access log, and the counts that are
// not 0.
func TestScripts(t *testing.T) {
	scripttest.Run(t, "testdata/exchanges.txt", func(t *testing.T, p *scripttest.Part) string {
		s := newScriptedExchange(t, func(c *config.Service) {
			for _, word := range p.Words {
				if change := serviceWords[word]; change != nil {
					change(c)
				}
			}
		})
		s.do(func() {
			s.request()
			for _, word := range p.Words {
				if serviceWords[word] == nil {
					scripttest.Find(t, requestWords, word)(s)
				}
			}
			if all := s.filters(p.Words); all != nil {
				s.route.setFilters(all)
			}
		})
		s.take(p)
		return s.outcome()
	})
}
