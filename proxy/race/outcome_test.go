package race

import (
	"fmt"
	"strings"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// noted returns what was noted. What was noted several times in a row is there once, with a number.
func (s *scriptedRace) noted() (all []string) {
	for i, n := 0, 0; i < len(s.events); i += n {
		for n = 1; i+n < len(s.events) && s.events[i+n] == s.events[i]; n++ {
		}
		if all = append(all, s.events[i]); n > 1 {
			all[len(all)-1] += fmt.Sprintf(", %d times", n)
		}
	}
	return all
}

// outcome returns what was noted, the class of latency if there is one, the spans of the request, and what was counted.
func (s *scriptedRace) outcome() (text string) {
	s.do(func() {
		all := s.noted()
		if class := s.race.Class; class != nil {
			all = append(all, fmt.Sprintf("class %s", class))
		}
		all = append(all, s.spans()...)
		text = strings.Join(append(all, s.counts()), "\n")
	})
	return text
}

// spans returns the spans of the attempts. A stream has none.
func (s *scriptedRace) spans() (all []string) {
	if s.race.Traced == nil {
		return nil
	}
	for i := range s.race.Traced.Attempts {
		a := &s.race.Traced.Attempts[i]
		if a.Endpoint == "" {
			continue
		}
		text := fmt.Sprintf("%s %d: %s, ended after %d ms", a.Kind, a.Number, a.Outcome, (a.Ended-a.Sent).Round(time.Millisecond)/time.Millisecond)
		if a.GRPC.Known {
			text += ", " + a.GRPC.Code.String()
		}
		if a.Status != 0 {
			text += fmt.Sprintf(", %d", a.Status)
		}
		if a.Error != "" {
			text += ", " + a.Error
		}
		if a.Withdrawn != 0 {
			text += fmt.Sprintf(", withdrawn after %d ms", (a.Withdrawn-a.Sent).Round(time.Millisecond)/time.Millisecond)
		}
		all = append(all, text)
	}
	return all
}

// inMS returns the longest of latencies in milliseconds.
func inMS(d *histogram.Distribution) int {
	most, _ := d.Quantile(1)
	return int(most.Round(time.Millisecond) / time.Millisecond)
}

// counts returns the counts of the service and of its endpoints that are not 0.
func (s *scriptedRace) counts() string {
	c, ends := s.svc.Counts(), stats.EndpointStats{}
	var all []string
	add := func(name string, n int) {
		if n != 0 {
			all = append(all, fmt.Sprintf("%s %d", name, n))
		}
	}
	inRow, took, streaks := 0, time.Duration(0), 0
	for _, e := range s.svc.Report(stats.Counters).Endpoints {
		ends.Add(&e.Stats)
		inRow, took, streaks = inRow+e.FailedInRow, took+e.Latency, streaks+e.RecentGood
	}
	add("retries", int(c.Retries))
	add("streams", int(c.Streams))
	add("open", c.StreamsOpen)
	add("streams failed", int(c.StreamsFailed))
	add("streams in", int(c.StreamBytesIn))
	add("streams out", int(c.StreamBytesOut))
	now := s.loop.Now()
	tokens := int(s.svc.Hedging.Tokens(now)*100 + .5)
	add("hundredths of a token", tokens)
	spare, refusing := 0, 0
	for i := range s.svc.Set.Len() {
		e := s.svc.Set.At(i)
		if e.Spare(now) {
			spare++
		}
		if e.Refuses() {
			refusing++
		}
		if i == 0 {
			add("ms of errors", int(e.LatencyOfError(0).Round(time.Millisecond)/time.Millisecond))
		}
	}
	if s.svc.Config.MaxConcurrency == config.MaxConcurrencyAuto {
		add("slots", s.svc.Shared.SlotLimit())
	}
	add("spare", spare)
	add("refusing", refusing)
	if load := s.svc.Load(); load.SinceResponse < 0 && load.Latency > 0 {
		add("no response yet", 1)
	}
	if effect := s.policy.HedgeRoute.Effect(now); effect != nil {
		add("ms with hedges", inMS(&effect.With))
		add("ms without", inMS(&effect.Without))
		add("longer", int(effect.Without.Censored))
		add("one in", effect.OneIn)
	}
	forecasts, watched := s.policy.HedgeRoute.Shadow.Forecasts(now, 9)
	add("watched", int(watched.Samples()))
	add("ms of watched", inMS(&watched))
	add("cut off", int(watched.Censored))
	for _, f := range forecasts {
		after := fmt.Sprintf(" with hedges after %d ms", f.Delay/time.Millisecond)
		add("hedges forecast", int(f.Hedges))
		add("ms"+after, inMS(&f.Latency))
		add("cut off"+after, int(f.Latency.Censored))
	}
	for gate, n := range s.policy.HedgeRoute.Counts.Gates {
		if hedge.Gate(gate) != hedge.Open {
			add(hedge.Gate(gate).String(), int(n))
		}
	}
	if s.svc.Hedging.Together.Covers(s.began, now) {
		add("silent together", 1)
	}
	for _, class := range s.policy.HedgeRoute.Classes(now) {
		add("of class "+class.Name, class.Samples)
	}
	for code, n := range c.GRPC {
		add(protocol.GRPCCode(code).String(), int(n))
	}
	add("in flight", s.svc.Shared.InFlight())
	if s.policy.HedgeRoute.Heads.Hold() {
		add("heads are held", 1)
	}
	add("paid", int(c.RetriesPaid))
	add("ahead", int(c.RetriesAhead))
	add("over budget", int(c.RetriesOverBudget))
	add("cascade", int(c.RetriesCascade))
	add("replays", int(s.shard.Stats.Replays))
	add("tied queued", int(c.TiedQueued))
	add("tied withdrawn", int(c.TiedWithdrawn))
	add("hedges", int(c.Hedges))
	add("missed", int(c.HedgesMissed))
	add("won", int(c.HedgesWon))
	for o, n := range ends.Outcomes {
		add(stats.AttemptOutcome(o).String(), int(n))
	}
	add("endpoint retries", int(ends.Retries))
	add("endpoint hedges", int(ends.Hedges))
	add("in", int(ends.BytesIn))
	add("out", int(ends.BytesOut))
	add("failed in row", inRow)
	add("good", streaks)
	add("ms of endpoints", int(took.Round(time.Millisecond)/time.Millisecond))
	add("ms", int(s.svc.Load().Latency.Round(time.Millisecond)/time.Millisecond))
	d := s.svc.Routes[0].Latencies.Primaries.Distribution(s.loop.Now())
	add("latencies", int(d.Samples()))
	add("censored", int(d.Censored))
	if all == nil {
		return "nothing"
	}
	return strings.Join(all, ", ")
}
