package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// ask runs f on every loop and waits for all, for patience or until ctx is done.
// answers[i] is loop i's; stuck lists the loops that gave none.
func ask[T any](ctx context.Context, p *proxy.Process, patience time.Duration, f func(*proxy.Worker) T) (answers []T, stuck []int) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type answer struct {
		loop  int
		value T
	}
	workers := p.Workers()
	// Room for all: a loop that answers too late must not wait for a reader.
	replies := make(chan answer, len(workers))
	for i, w := range workers {
		w.Post(func() { replies <- answer{i, f(w)} })
	}
	answers = make([]T, len(workers))
	answered := make([]bool, len(workers))
	for range workers {
		select {
		case a := <-replies:
			answers[a.loop], answered[a.loop] = a.value, true
			continue
		case <-ctx.Done():
		}
		break
	}
	for i, ok := range answered {
		if !ok {
			stuck = append(stuck, i)
		}
	}
	return answers, stuck
}

// gather asks every loop, for all of them or an error. One question is under way
// at a time, whatever the number of scrapers, so that a loop has at most one to
// answer.
func gather[T any](ctx context.Context, s *Server, f func(*proxy.Worker) T) ([]T, error) {
	select {
	case s.reports <- struct{}{}:
		defer func() { <-s.reports }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	answers, stuck := ask(ctx, s.opt.Process, s.patience, f)
	if len(stuck) > 0 {
		// Counters without one loop's part would look like a restart.
		return nil, fmt.Errorf("admin: loops %v do not answer", stuck)
	}
	return answers, nil
}

// report asks every loop for its report. The loops have the same services and
// routes: while a reload is under way, which ends as soon as each loop has had a
// turn, they are asked again.
func (s *Server) report(ctx context.Context) ([]stats.WorkerReport, error) {
	for {
		reports, err := gather(ctx, s, (*proxy.Worker).Report)
		if err != nil || alike(reports) {
			return reports, err
		}
	}
}

func alike(reports []stats.WorkerReport) bool {
	for i := range reports {
		if reports[i].Generation != reports[0].Generation {
			return false
		}
	}
	return true
}

// merge sums up what the loops say about a service. Routes and endpoints are the
// loops' side by side: of routes the longest delay, of endpoints the sums of
// counts and the worst of the rest.
func merge(reports []stats.WorkerReport) []stats.ServiceReport {
	var out []stats.ServiceReport
	for i := range reports {
		if i == 0 {
			out = reports[0].Services
			continue
		}
		for j := range out {
			mergeService(&out[j], &reports[i].Services[j])
		}
	}
	return out
}

func mergeService(into, s *stats.ServiceReport) {
	into.Version = min(into.Version, s.Version)
	into.Stats.Add(&s.Stats)
	into.HedgesInFlight += s.HedgesInFlight
	into.Panics = into.Panics || s.Panics
	into.Tokens += s.Tokens
	for i := range into.Routes {
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
	into.Counts.Add(&r.Counts)
	into.Recent += r.Recent
	into.RecentWon += r.RecentWon
	into.Latency.Add(&r.Latency)
	for i := range into.Forecasts {
		f, of := &into.Forecasts[i], &r.Forecasts[i]
		f.Delay = max(f.Delay, of.Delay)
		f.Latency.Add(&of.Latency)
		f.Hedges += of.Hedges
	}
}

func mergeEndpoint(into, e *stats.EndpointReport) {
	into.Connections += e.Connections
	into.Pending += e.Pending
	// Of the loops' averages the longest: one loop that has a slow endpoint
	// should be seen.
	into.Latency = max(into.Latency, e.Latency)
	into.Stalled = into.Stalled || e.Stalled
	into.Unhealthy = into.Unhealthy || e.Unhealthy
	if !into.Ejected {
		into.Ejected, into.EjectedBy = e.Ejected, e.EjectedBy
	}
	into.Others = max(into.Others, e.Others)
	into.Reported = into.Reported || e.Reported
	into.Ejections += e.Ejections
	into.Stats.Add(&e.Stats)
}
