package exchange

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// asker is the Caller of a request that begins.
type asker struct {
	peer
	over   bool // its connection holds more than its share of memory
	status int  // of its response
	failed *fault.Failure
}

func (a *asker) OverShare(*Exchange) bool                        { return a.over }
func (a *asker) Encode(*Exchange, *race.Response) *fault.Failure { return nil }
func (a *asker) Fail(_ *Exchange, f *fault.Failure)              { a.failed = f }
func (a *asker) Respond(_ *Exchange, res *race.Response) {
	a.status = res.Status
	res.Release()
}

// storing is a filter that answers early if it has a response, or later, or refuses.
type storing struct {
	EarlyFilter
	pool         *Pool
	has          bool
	late         Next // Decided: it answers when it sees the request, or refuses
	refusal      *fault.Failure
	asked, ended int
	retired      int
}

func (s *storing) Early(ex *Exchange) bool {
	s.asked++
	if s.has {
		s.answer(ex)
	}
	return s.has
}
func (s *storing) Request(ex *Exchange) Next {
	switch {
	case s.late == Continue:
	case s.refusal != nil:
		ex.Refuse(s.refusal)
	default:
		s.answer(ex)
	}
	return s.late
}
func (s *storing) End(*Exchange) { s.ended++ }
func (s *storing) Retire()       { s.retired++ }

func (s *storing) answer(ex *Exchange) {
	res := s.pool.Response()
	res.Status = 203
	ex.Answer(res)
}

// TestBegin: what a caller gets, and what is counted, of a request that its route or an early filter answers, and of one that
// memory or its service has no room for. A request that passes fails, since the service has no endpoint.
func TestBegin(t *testing.T) {
	limits := &config.Default().Limits
	all, half := limits.Buffered, limits.Buffered/2
	for name, c := range map[string]struct {
		answers, early, stored bool
		late                   Next // of the filter
		batchRoute, batch      bool
		grpc                   bool
		taken                  int64 // bytes that others hold
		over                   bool

		status  int
		failure *fault.Failure
		asked   int    // the early filter
		arrived uint64 // requests that the service has
	}{
		"the route answers":                      {answers: true, status: 204},
		"memory is short, and the route answers": {answers: true, taken: all, over: true, status: 204},
		"nothing is stored":                      {early: true, failure: fault.NoEndpoint, asked: 1, arrived: 1},
		"a response is stored":                   {early: true, stored: true, status: 203, asked: 1, arrived: 1},
		"a response to gRPC is stored":           {early: true, stored: true, grpc: true, status: 203, asked: 1, arrived: 1},
		"a filter answers":                       {early: true, late: Decided, status: 203, asked: 1, arrived: 1},
		"a filter refuses":                       {early: true, late: Decided, failure: fault.Injected, asked: 1, arrived: 1},
		"stored, and over its share":             {early: true, stored: true, taken: all, over: true, failure: fault.Overloaded},
		"stored, and within its share":           {early: true, stored: true, taken: all, status: 203, asked: 1, arrived: 1},
		"stored, and memory is not short":        {early: true, stored: true, taken: all - 1, over: true, status: 203, asked: 1, arrived: 1},
		"over its share":                         {taken: all, over: true, failure: fault.Overloaded},
		"over its share, and memory is left":     {taken: all - 1, over: true, failure: fault.NoEndpoint, arrived: 1},
		"within its share":                       {taken: all, failure: fault.NoEndpoint, arrived: 1},
		"a route of batch":                       {batchRoute: true, taken: half - 1, failure: fault.NoEndpoint, arrived: 1},
		"a route of batch, half of memory":       {batchRoute: true, taken: half, failure: fault.Overloaded},
		"batch":                                  {batch: true, taken: half - 1, failure: fault.NoEndpoint, arrived: 1},
		"batch, half of memory":                  {batch: true, taken: half, failure: fault.Overloaded},
		"a gRPC call":                            {grpc: true, failure: fault.NoEndpoint, arrived: 1},
	} {
		t.Run(name, func(t *testing.T) {
			onLoop(func(w *shard.Shard) {
				p, s, at := NewPool(w), serviceOn(w, func(*config.Service) {}), &Listener{Name: "in"}
				f := &storing{pool: p, has: c.stored, late: c.late, refusal: c.failure}
				priority := config.PriorityOnline
				if c.batchRoute {
					priority = config.PriorityBatch
				}
				plan := &route.Plan{Route: &config.Route{}, Policy: &config.Policy{Timeout: time.Second, Priority: priority}}
				r := NewRoute(plan, s)
				if c.answers {
					plan.Route.Respond.Status = 204
					r = NewRoute(plan, nil)
				}
				if c.early {
					r.setFilters([]Filter{f})
				}
				by := &asker{peer: peer{at: at}, over: c.over}
				ex := p.Exchange(by)
				ex.Request.Method, ex.Request.Batch = []byte("GET"), c.batch
				if c.grpc {
					ex.Request.Headers = []protocol.Header{{Name: protocol.NameContentType, Value: []byte("application/grpc")}}
				}
				w.Process.Budget.Charge(c.taken)
				ex.Begin(r, at)
				if by.status != c.status || by.failed != c.failure {
					t.Errorf("the status is %d, the failure %v", by.status, by.failed)
				}
				if f.asked != c.asked || s.Stats.Requests != c.arrived {
					t.Errorf("the early filter is asked %d times, the service has %d requests", f.asked, s.Stats.Requests)
				}
				ended := 0
				if c.early && !c.stored && c.arrived > 0 {
					ended = 1
				}
				if f.ended != ended {
					t.Errorf("the filter is told %d times that the request has ended, want %d", f.ended, ended)
				}
				if ms := w.Milliseconds.Now(w.Loop.Now()); ms.Arrivals != 1 || ms.Answers != 1 {
					t.Errorf("the millisecond has %+v", ms)
				}
				outcome := stats.Outcome2xx
				if c.failure != nil {
					outcome = stats.OutcomeFailed
				}
				want, batches := [stats.Outcomes]uint64{}, [stats.Outcomes]uint64{}
				if !c.answers {
					want[outcome] = 1
				}
				if c.batch || c.batchRoute {
					batches[outcome] = 1
				}
				if s.Stats.Outcomes != want || s.Stats.Batch != batches || w.Stats.Requests != 1 {
					t.Errorf("%d requests, outcomes %v, of batch %v", w.Stats.Requests, s.Stats.Outcomes, s.Stats.Batch)
				}
				calls := uint64(0)
				for _, n := range s.Stats.GRPC {
					calls += n
				}
				if (calls == 1) != c.grpc {
					t.Errorf("%d calls of gRPC", calls)
				}
				if ex.state != exchangeIdle || ex.Route != nil || p.Exchange(by) != ex {
					t.Error("the exchange is not free again")
				}
			})
		})
	}
}
