package exchange

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// serviceWords are words of testdata/lives.txt for settings of the service.
var serviceWords = map[string]func(c *config.Service){
	"retries": func(c *config.Service) {
		c.Policy.Retry = config.Retry{Attempts: 2, On: []string{"connect", "reset", "503"}}
	},
	"no place":  func(c *config.Service) { c.MaxPending = 0 },
	"one place": func(c *config.Service) { c.MaxPending = 1 },
	"breaker":   func(c *config.Service) { c.Breaker.Consecutive, c.Breaker.Open = 1, time.Second },
	"sticky":    func(c *config.Service) { c.LB.Sticky = config.Sticky{Cookie: "at", Secret: "0123456789abcdef"} },
	"session": func(c *config.Service) {
		c.LB.Policy, c.LB.Hash = config.LBConsistentHash, config.Hash{Cookie: "sid", TTL: time.Hour}
	},
	"one slot":   func(c *config.Service) { c.MaxConcurrency = 1 },
	"batch":      func(c *config.Service) { c.Policy.Priority = config.PriorityBatch },
	"idempotent": func(c *config.Service) { c.Policy.Idempotent = []string{config.IdempotentTrue} },
}

// requestWords are words for the listener, the route, the request and its caller.
var requestWords = map[string]func(l *life){
	"sidecar":  func(l *life) { l.at.Sidecars, l.at.Protocol = true, "link" },
	"no route": func(l *life) { l.route = nil },
	"an answer": func(l *life) {
		l.route = NewRoute(&route.Plan{Match: &config.Match{}, Route: &config.Route{Respond: config.Respond{Status: 222}}, Policy: &config.Policy{Timeout: time.Second}}, nil)
	},
	"a copy":      func(l *life) { l.at.copies = true },
	"refused":     func(l *life) { l.ex.RefuseLater(fault.BadPath); l.ex.RefuseLater(fault.Loop) },
	"a login":     func(l *life) { l.ex.NoteLogin(protocol.LoginOnce) },
	"steps":       func(l *life) { l.ex.NoteLogin(protocol.LoginSteps) },
	"no login":    func(l *life) { l.ex.NoteLogin(protocol.NoLogin) },
	"100 ms":      func(l *life) { l.ex.SetTimeout(100 * time.Millisecond) },
	"no time":     func(l *life) { l.ex.SetTimeout(0) },
	"gRPC":        func(l *life) { l.header("content-type", "application/grpc") },
	"traced":      func(l *life) { l.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01") },
	"not sampled": func(l *life) { l.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00") },
	"sampling":    func(l *life) { l.shard.Sampler.Configure(&config.Tracing{Endpoint: "x", Sample: 1}) },
	"no sink":     func(l *life) { l.shard.Process.Sink = nil },
	"request id":  func(l *life) { l.header("x-request-id", "id1") },
	"dubbo":       func(l *life) { l.ex.Request.Codec = dubbo.CodecHessian2 },
	"PUT":         func(l *life) { l.ex.Request.Method = []byte("PUT") },
	"rewritten":   func(l *life) { l.ex.OriginalPath, l.ex.OriginalHost = []byte("/before"), []byte("other") },
	"lingering":   func(l *life) { l.lingers = true },
	"unencodable": func(l *life) { l.refuses = fault.Malformed },
	"over share":  func(l *life) { l.share = true },
	"short memory": func(l *life) {
		l.shard.Process.Budget.Configure(&config.Limits{Buffered: 1 << 20})
		l.shard.Recount(&l.others, 2<<20)
	},
	"tier": func(l *life) { l.header("x-tier", "gold") },
	"body": func(l *life) {
		l.ex.BodyBuffer = l.shard.Buffers.GetRoom(50)
		l.ex.BodyBuffer.B = append(l.ex.BodyBuffer.B, "body"...)
		l.ex.Charge()
	},
	"injected":            func(l *life) { l.ex.Injected, l.ex.Cached = stats.InjectedDelay, stats.CacheMiss },
	"full":                func(l *life) { l.svc.Admission.Admit(&l.other.Place, &service.Ask{}) },
	"tied":                func(l *life) { l.ex.Request.Tied, l.ex.Request.Hedge = true, true },
	"batch of the caller": func(l *life) { l.ex.Request.Batch = true },
	"bad trace":           func(l *life) { l.header("traceparent", "00-0"); l.header("tracestate", "a=b") },
	"a pin": func(l *life) {
		l.header("cookie", "at="+l.svc.Sessions.Sticky.ID("192.0.2.1:1"))
	},
	"seeing": nil, "holding": nil, "refusing": nil, "answering": nil, "watching": nil, "replacing": nil, "keeping": nil, "early": nil, "stored": nil,
}

func (l *life) header(name, value string) {
	l.ex.Request.Headers = append(l.ex.Request.Headers, protocol.Header{Name: []byte(name), Value: []byte(value)})
}

// filters returns the filters that words name.
func (l *life) filters(words []string) (all []Filter) {
	for _, word := range words {
		switch p := (phase{l, word}); word {
		case "seeing", "holding", "refusing", "answering":
			all = append(all, p)
		case "watching", "replacing", "keeping":
			all = append(all, outcomes{p})
		case "early", "stored":
			all = append(all, early{p})
		}
	}
	return all
}

var update = flag.Bool("update", false, "write testdata/lives.txt anew")

// TestLives: what becomes of a request. Each part of testdata/lives.txt has a name, what the request is like, a script, and then what
// its caller, the filters and the endpoint are told, the access line, and the counts.
func TestLives(t *testing.T) {
	const path = "testdata/lives.txt"
	parts := strings.Split(strings.TrimSpace(string(must.ReadFile(t, path))), "\n\n")
	for i, part := range parts {
		lines := append(strings.SplitN(part, "\n", 4), "")
		words := strings.Split(lines[1], ", ")
		t.Run(strings.TrimPrefix(lines[0], "# "), func(t *testing.T) {
			l := newLife(t, func(c *config.Service) {
				for _, word := range words {
					if change := serviceWords[word]; change != nil {
						change(c)
					}
				}
			})
			l.do(func() {
				l.request()
				for _, word := range words {
					change, known := requestWords[word]
					if change != nil {
						change(l)
					} else if !known && serviceWords[word] == nil && word != "GET" {
						t.Errorf("no word %q", word)
					}
				}
				if all := l.filters(words); all != nil {
					l.route.setFilters(all)
				}
			})
			l.play(lines[2])
			got := l.String()
			if got != lines[3] && !*update {
				t.Errorf("got\n%s\nwant\n%s", got, lines[3])
			}
			parts[i] = strings.Join([]string{lines[0], lines[1], lines[2], got}, "\n")
			l.checkEnd()
		})
	}
	if *update {
		must.WriteFile(t, path, strings.Join(parts, "\n\n")+"\n")
	}
}
