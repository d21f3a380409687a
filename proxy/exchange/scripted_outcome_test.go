package exchange

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// outcome returns what was noted, the line of the access log, and what was counted. It ends the exchange, and sends another request.
func (s *scriptedExchange) outcome() string {
	s.t.Helper()
	var counts string
	s.do(func() { counts = s.counts() })
	all := s.events
	for text := range strings.Lines(s.text.String()) {
		_, text, _ = strings.Cut(text, "level=")
		all = append(all, "log: "+strings.TrimSpace(text))
	}
	s.checkEnd()
	s.checkNext()
	lines := s.accessLines()
	const want = "- - - - in 10.0.0.1:1 http GET host /path?query - - other 192.0.2.2:1 2xx 200 - - -, 15 in, 5 out, 1 attempts, after 5 ms"
	next := len(lines) - 1
	if next < 0 || !strings.HasSuffix(lines[next], " ms "+want) {
		s.t.Fatalf("the lines of the access log are %q, want at last %q", lines, want)
	}
	if next == 0 {
		all = append(all, "no line")
	}
	return strings.Join(append(append(all, lines[:next]...), counts), "\n")
}

// checkEnd checks that nothing is left of the request.
func (s *scriptedExchange) checkEnd() {
	s.t.Helper()
	s.do(func() {
		s.shard.Recount(&s.others, 0)
		if n := s.svc.Shared.InFlight(); n != 0 || s.shard.Uncounted != 0 || s.shard.Process.Budget.Held() != 0 {
			s.t.Errorf("%d requests and %d bytes are left", n, s.shard.Uncounted)
		}
		if s.ex.deadline.Armed() {
			s.t.Error("the deadline is armed")
		}
	})
}

// checkNext checks that another request, which uses the same exchange, has nothing of the first one.
func (s *scriptedExchange) checkNext() {
	s.t.Helper()
	first := s.ex
	s.do(func() {
		s.events, s.lingers, s.refuses, s.share = nil, false, nil, false
		s.current, s.reads, s.body = nil, false, nil
		s.at = Listener{Name: "in", Protocol: "http"}
		s.shard.Sampler.Configure(&config.Tracing{})
		s.shard.AccessLog.Configure(&s.rules, s.queue)
		_, s.route = s.service("other", "192.0.2.2:1", func(*config.Service) {})
	})
	s.world.Run(time.Millisecond)
	s.do(func() {
		if s.request(); s.ex != first {
			s.t.Error("the exchange is not used again")
		}
		s.ex.Begin(s.route, &s.at)
	})
	s.world.Run(5 * time.Millisecond)
	s.do(func() { s.attempt().Respond(s.response(200)) })
	want := []string{"send, service other, idempotent true, alone false, batch false, due in 1000 ms", "encode 200", "respond 200, 0 pending"}
	if !slices.Equal(s.events, want) {
		s.t.Errorf("the next request has\n%s", strings.Join(s.events, "\n"))
	}
	s.checkEnd()
}

// accessLines returns the lines of the access log, with times in milliseconds. It closes the log.
func (s *scriptedExchange) accessLines() (lines []string) {
	s.t.Helper()
	s.do(s.shard.AccessLog.Flush)
	if err := s.lines.Close(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(must.ReadFile(s.t, s.log))) {
		at, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		began, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			s.t.Fatal(err)
		}
		text, after, _ := strings.Cut(text, "after ")
		ms, err := strconv.ParseFloat(after, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%d ms %safter %.0f ms", began.Round(time.Millisecond).UnixMilli(), text, ms))
	}
	return lines
}

// counts returns the counts that are not 0.
func (s *scriptedExchange) counts() string {
	var all []string
	add := func(name string, n int) {
		if n != 0 {
			all = append(all, fmt.Sprintf("%s %d", name, n))
		}
	}
	w := &s.shard.Stats
	add("requests", int(w.Requests))
	add("responses of routes", int(w.Responses))
	for key, n := range w.Errors {
		add(key.Listener+" "+key.Code, int(n))
	}
	for listener, n := range w.Unrouted {
		add("unrouted of "+listener, int(n))
	}
	c := s.svc.Counts()
	add("service", int(c.Requests))
	for o, n := range c.Outcomes {
		add(stats.Outcome(o).String(), int(n))
	}
	for o, n := range c.Batch {
		add("batch "+stats.Outcome(o).String(), int(n))
	}
	for code, n := range c.GRPC {
		add("call "+protocol.GRPCCode(code).String(), int(n))
	}
	add("latencies", int(c.Latency.Count()))
	add("in", int(c.BytesIn))
	add("out", int(c.BytesOut))
	if s.route != nil && s.route.HedgeRoute != nil {
		add("hedges that have won", int(s.route.HedgeRoute.Counts.HedgesWon))
		add("primaries given up", int(s.route.HedgeRoute.Latencies.Primaries.Distribution(s.loop.Now()).Censored))
	}
	if state := s.svc.Report(stats.Counters).Breaker; state != stats.BreakerNone {
		all = append(all, "breaker "+[...]string{stats.BreakerClosed: "closed", stats.BreakerOpen: "open", stats.BreakerHalfOpen: "half-open"}[state])
	}
	var sum stats.Millisecond
	for _, ms := range s.shard.Milliseconds.Since(0, s.loop.Now()).List {
		sum.Add(&ms)
	}
	add("arrivals", int(sum.Arrivals))
	add("bytes of arrivals", int(sum.BytesIn))
	add("answers", int(sum.Answers))
	add("bytes of answers", int(sum.BytesOut))
	add("worst ms", int(sum.Worst.Round(time.Millisecond)/time.Millisecond))
	return strings.Join(all, ", ")
}
