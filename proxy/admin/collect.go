package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// query runs f on every loop and waits for all, until timeout or the end of ctx.
// results[i] is that of loop i; stuck lists the loops without one.
func query[T any](ctx context.Context, p *proxy.Process, timeout time.Duration, f func(*proxy.Worker) T) (results []T, stuck []int) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type result struct {
		loop  int
		value T
	}
	workers := p.Workers()
	// Capacity for all: a loop that is too late must not wait for a reader.
	received := make(chan result, len(workers))
	for i, w := range workers {
		w.Post(func() { received <- result{i, f(w)} })
	}
	results = make([]T, len(workers))
	done := make([]bool, len(workers))
	for range workers {
		select {
		case r := <-received:
			results[r.loop], done[r.loop] = r.value, true
			continue
		case <-ctx.Done():
		}
		break
	}
	for i, ok := range done {
		if !ok {
			stuck = append(stuck, i)
		}
	}
	return results, stuck
}

// NotResponding is part of a response that lacks what a loop knows, since the loop did not respond in time.
const NotResponding = "do not respond"

// stuckLoops names loops that do not respond in time, by their numbers.
func stuckLoops(stuck []int) string { return fmt.Sprintf("loops %v %s", stuck, NotResponding) }

// gather queries every loop and fails if one is stuck. One query is in progress at a
// time, whatever the number of scrapers, so that a loop has at most one.
func gather[T any](ctx context.Context, s *Server, f func(*proxy.Worker) T) ([]T, error) {
	select {
	case s.reports <- struct{}{}:
		defer func() { <-s.reports }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	results, stuck := query(ctx, s.opt.Process, s.loopTimeout, f)
	if len(stuck) > 0 {
		// Counters without the part of one loop would look like a restart.
		return nil, errors.New("admin: " + stuckLoops(stuck))
	}
	return results, nil
}

// glance is gather for an f that only reads. It wakes no loop if all of them wait.
func glance[T any](ctx context.Context, s *Server, f func(*proxy.Worker) T) ([]T, error) {
	workers := s.opt.Process.Workers()
	results := make([]T, len(workers))
	for i, w := range workers {
		if !w.Peek(func() { results[i] = f(w) }) {
			return gather(ctx, s, f)
		}
	}
	return results, nil
}

// report returns the reports of all loops, which have the same services and routes.
// During a reload it queries the loops again; the reload ends when each loop has had a
// turn.
func report(ctx context.Context, s *Server, d stats.Detail) ([]stats.WorkerReport, error) {
	for {
		reports, err := gather(ctx, s, func(w *proxy.Worker) stats.WorkerReport { return w.Report(d) })
		differs := func(r stats.WorkerReport) bool { return r.Generation != reports[0].Generation }
		if err != nil || !slices.ContainsFunc(reports, differs) {
			return reports, err
		}
	}
}

// merge adds up the reports of the loops for each service. Routes and endpoints are merged
// too: counts are added, of delays and latencies the longest counts, and of states the
// worst.
func merge(reports []stats.WorkerReport) []stats.ServiceReport {
	out := reports[0].Services
	for _, r := range reports[1:] {
		for i := range r.Services {
			s := &r.Services[i]
			at, ok := slices.BinarySearchFunc(out, s.Name, func(o stats.ServiceReport, name string) int {
				return strings.Compare(o.Name, name)
			})
			if ok {
				mergeService(&out[at], s)
			} else { // an earlier loop's switch to the generation panicked
				out = slices.Insert(out, at, *s)
			}
		}
	}
	return out
}

// ListenerErrors are the counts of one listener's error responses by this sidecar.
type ListenerErrors struct {
	Errors   map[string]uint64 `json:"errors"`   // by x-remora-error
	Unrouted uint64            `json:"unrouted"` // of these, those that no service counts
}

// listenerErrors adds up the error responses of the loops for each listener that has any. The
// name is empty for streams whose listener is unknown.
func listenerErrors(reports []stats.WorkerReport) map[string]*ListenerErrors {
	all := map[string]*ListenerErrors{}
	of := func(name string) *ListenerErrors {
		l := all[name]
		if l == nil {
			l = &ListenerErrors{Errors: map[string]uint64{}}
			all[name] = l
		}
		return l
	}
	for i := range reports {
		for k, n := range reports[i].Stats.Errors {
			of(k.Listener).Errors[k.Code] += n
		}
		for name, n := range reports[i].Stats.Unrouted {
			of(name).Unrouted += n
		}
	}
	return all
}

func mergeService(into, s *stats.ServiceReport) {
	into.Version = min(into.Version, s.Version)
	into.Stats.Add(&s.Stats)
	into.HedgesInFlight += s.HedgesInFlight
	into.Panics = into.Panics || s.Panics
	into.Tokens += s.Tokens
	if s.Stalls.Seen > into.Stalls.Seen {
		into.Stalls, into.StalledAt = s.Stalls, s.StalledAt
	}
	for i := range min(len(into.Routes), len(s.Routes)) {
		mergeRoute(&into.Routes[i], &s.Routes[i])
	}
	// Loops may be one snapshot apart.
	at := make(map[string]int, len(into.Endpoints))
	for i := range into.Endpoints {
		at[into.Endpoints[i].Addr] = i
	}
	for _, e := range s.Endpoints {
		i, ok := at[e.Addr]
		if !ok {
			into.Endpoints = append(into.Endpoints, e)
			continue
		}
		mergeEndpoint(&into.Endpoints[i], &e)
	}
}

func mergeRoute(into, r *stats.RouteReport) {
	into.Delay = max(into.Delay, r.Delay)
	if r.Choice.Delay > into.Choice.Delay {
		into.Choice = r.Choice
	}
	into.Counts.Add(&r.Counts)
	into.Latency.Add(&r.Latency)
	if into.Effect != nil {
		into.Effect.Add(r.Effect)
	}
	for _, c := range r.Classes {
		i := slices.IndexFunc(into.Classes, func(o hedge.ClassReport) bool { return o.Name == c.Name })
		if i < 0 {
			into.Classes = append(into.Classes, c)
			continue
		}
		o := &into.Classes[i]
		o.Samples += c.Samples
		o.Delay, o.Median = max(o.Delay, c.Delay), max(o.Median, c.Median)
		o.Merged = o.Merged && c.Merged
	}
	into.Watched.Add(&r.Watched)
	for i := range min(len(into.Forecasts), len(r.Forecasts)) {
		into.Forecasts[i].Add(&r.Forecasts[i])
	}
}

func mergeEndpoint(into, e *stats.EndpointReport) {
	into.Connections += e.Connections
	into.Pending += e.Pending
	// The longest average of all loops, so that one loop with a slow endpoint shows.
	into.Latency = max(into.Latency, e.Latency)
	into.Stalled = into.Stalled || e.Stalled
	into.Unhealthy = into.Unhealthy || e.Unhealthy
	into.FailedInRow = max(into.FailedInRow, e.FailedInRow)
	into.RecentGood += e.RecentGood
	if !into.Ejected {
		into.Ejected, into.EjectedBy = e.Ejected, e.EjectedBy
	}
	into.Others = max(into.Others, e.Others)
	into.Reported = into.Reported || e.Reported
	into.Ejections += e.Ejections
	into.Stats.Add(&e.Stats)
}
