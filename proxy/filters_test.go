package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// scripted is an OutcomeFilter that notes what it sees, and does what it is told.
type scripted struct {
	name     string
	seen     *[]string
	request  func(ex *exchange.Exchange) exchange.Next
	response func(ex *exchange.Exchange, res *race.Response) *race.Response
	failure  func(ex *exchange.Exchange) exchange.Next

	at *exchange.FilterPlace
}

func (f *scripted) note(what string) { *f.seen = append(*f.seen, f.name+" "+what) }

func (f *scripted) Request(ex *exchange.Exchange) exchange.Next {
	f.note("request")
	if f.request != nil {
		return f.request(ex)
	}
	return exchange.Continue
}

func (f *scripted) Response(ex *exchange.Exchange, res *race.Response) *race.Response {
	f.note("response")
	if f.response != nil {
		return f.response(ex, res)
	}
	return res
}

func (f *scripted) Failure(ex *exchange.Exchange, why *fault.Failure) exchange.Next {
	f.note(why.Code)
	if f.failure != nil {
		return f.failure(ex)
	}
	return exchange.Continue
}

func (f *scripted) End(*exchange.Exchange) { f.note("end") }

func (*scripted) Retire() {}

// says returns a response of the filter's own to ex with a status.
func (f *scripted) says(ex *exchange.Exchange, status int) *race.Response {
	res := f.at.Pool.Response()
	res.Status = status
	res.HeadBuffer = f.at.Shard.Buffers.Get(0)
	res.AddDate()
	nonce := protocol.Header{Name: []byte("x-nonce"), Value: protocol.Find(ex.Request.Headers, "x-nonce")}
	res.Headers = append(res.Headers, nonce)
	res.Charge()
	return res
}

// later calls do on the filter's loop, a second later.
func (f *scripted) later(m *proxytest.Mesh, do func()) {
	m.W.At(m.W.Now()+time.Second, func() { m.Consumer.Loop.Do(do) })
}

// TestOutcomeFilters: filters see what a request comes to, the last one first, and may replace it,
// at once or later. Each that has seen the request or its failure is told of the end, once.
func TestOutcomeFilters(t *testing.T) {
	type ex = exchange.Exchange
	for _, c := range []struct {
		name  string
		setup func(m *proxytest.Mesh, outer, inner *scripted)
		mesh  proxytest.MeshOptions
		want  string // what the filters see
		says  string // what the caller gets
		took  time.Duration
	}{
		{
			name: "a response", want: "outer request, inner request, inner response, outer response, outer end, inner end", says: "200",
		},
		{
			name: "replaced",
			setup: func(m *proxytest.Mesh, outer, inner *scripted) {
				inner.response = func(of *ex, res *race.Response) *race.Response {
					res.Release()
					return inner.says(of, 203)
				}
			},
			want: "outer request, inner request, inner response, outer response, outer end, inner end", says: "203",
		},
		{
			name: "held",
			setup: func(m *proxytest.Mesh, outer, inner *scripted) {
				inner.response = func(of *ex, res *race.Response) *race.Response {
					inner.later(m, func() { of.Answer(res) })
					return nil
				}
			},
			want: "outer request, inner request, inner response, outer response, outer end, inner end", says: "200", took: time.Second,
		},
		{
			name: "held and refused",
			setup: func(m *proxytest.Mesh, outer, inner *scripted) {
				inner.response = func(of *ex, res *race.Response) *race.Response {
					res.Release()
					inner.later(m, func() { of.Refuse(fault.NoEndpoint) })
					return nil
				}
			},
			want: "outer request, inner request, inner response, outer no-endpoint, outer end, inner end", says: "503 no-endpoint", took: time.Second,
		},
		{
			name: "answered without the service",
			setup: func(m *proxytest.Mesh, outer, inner *scripted) {
				outer.request = func(of *ex) exchange.Next {
					of.Answer(outer.says(of, 203))
					return exchange.Decided
				}
			},
			want: "outer request, outer end", says: "203",
		},
		{
			name:  "a failure",
			setup: func(m *proxytest.Mesh, _, _ *scripted) { m.Consumer.Update("compute") },
			want:  "outer request, inner request, inner no-endpoint, outer no-endpoint, outer end, inner end", says: "503 no-endpoint",
		},
		{
			name: "a failure replaced",
			setup: func(m *proxytest.Mesh, outer, inner *scripted) {
				m.Consumer.Update("compute")
				inner.failure = func(of *ex) exchange.Next {
					of.Answer(inner.says(of, 203))
					return exchange.Decided
				}
			},
			want: "outer request, inner request, inner no-endpoint, outer response, outer end, inner end", says: "203",
		},
		{
			name: "replaced after the deadline",
			mesh: proxytest.MeshOptions{Service: "timeout: 2s"},
			setup: func(m *proxytest.Mesh, outer, inner *scripted) {
				m.Apps[0].Delay = func() time.Duration { return time.Minute }
				outer.failure = func(of *ex) exchange.Next {
					outer.later(m, func() { of.Answer(outer.says(of, 203)) })
					return exchange.Wait
				}
			},
			want: "outer request, inner request, inner deadline, outer deadline, outer end, inner end", says: "203", took: 3 * time.Second,
		},
		{
			name: "held past the deadline",
			mesh: proxytest.MeshOptions{Service: "timeout: 500ms"},
			setup: func(m *proxytest.Mesh, outer, inner *scripted) {
				m.Consumer.Update("compute")
				inner.failure = func(*ex) exchange.Next { return exchange.Wait }
			},
			want: "outer request, inner request, inner no-endpoint, outer deadline, outer end, inner end", says: "504 deadline", took: 500 * time.Millisecond,
		},
		{
			name: "not admitted",
			mesh: proxytest.MeshOptions{Service: "rate_limit: {rate: 1, burst: 1}"},
			setup: func(m *proxytest.Mesh, outer, inner *scripted) {
				first := m.Post(10)
				m.Do(first)
				m.Finish(first)
				*outer.seen = nil
			},
			want: "inner rate-limited, outer rate-limited, outer end, inner end", says: "429 rate-limited",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen []string
			outer, inner := &scripted{name: "outer", seen: &seen}, &scripted{name: "inner", seen: &seen}
			maker := func(f *scripted) exchange.FilterMaker {
				return func(at *exchange.FilterPlace) exchange.Filter {
					if f.at = at; at.Service.Config.Name != "compute" {
						return nil
					}
					return f
				}
			}
			defer proxy.SetFilters(maker(outer), maker(inner))()
			c.mesh.Apps, c.mesh.OneHop = 1, true
			m := proxytest.NewMesh(t, c.mesh)
			if c.setup != nil {
				c.setup(m, outer, inner)
			}
			call := m.Post(10)
			m.Do(call)
			m.Finish(call)
			m.Settled()
			if all := strings.Join(seen, ", "); all != c.want {
				t.Errorf("filters saw\n%s, want\n%s", all, c.want)
			}
			if got := strings.TrimSpace(fmt.Sprint(call.Status, " ", call.Code)); got != c.says {
				t.Errorf("the caller got %q, want %q", got, c.says)
			}
			if call.Took < c.took || call.Took > c.took+100*time.Millisecond {
				t.Errorf("it took %v, want %v", call.Took, c.took)
			}
		})
	}
}

// TestOutcomeFilterCallerGone: a filter that holds an outcome is told when its caller leaves.
func TestOutcomeFilterCallerGone(t *testing.T) {
	var seen []string
	f := &scripted{name: "f", seen: &seen, response: func(_ *exchange.Exchange, res *race.Response) *race.Response {
		res.Release()
		return nil
	}}
	defer proxy.SetFilters(func(at *exchange.FilterPlace) exchange.Filter { return f })()
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	client := m.Do(m.Post(10))
	m.RunUntil("the response is held", func() bool { return len(seen) == 2 })
	m.Clients.Do(client.Conn.Close)
	m.RunUntil("the end", func() bool { return len(seen) == 3 })
	m.Settled()
	if all := strings.Join(seen, ", "); all != "f request, f response, f end" {
		t.Errorf("the filter saw %s", all)
	}
}

// TestOutcomeFilterVerdicts: the breaker is judged by what the service did, not by what a filter
// made of it.
func TestOutcomeFilterVerdicts(t *testing.T) {
	var seen []string
	f := &scripted{name: "f", seen: &seen}
	f.response = func(of *exchange.Exchange, res *race.Response) *race.Response {
		res.Release()
		return f.says(of, 203)
	}
	defer proxy.SetFilters(func(at *exchange.FilterPlace) exchange.Filter { f.at = at; return f })()
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "breaker: {consecutive: 2, open: 1m}"})
	state := func(want stats.BreakerState) {
		t.Helper()
		call := m.Post(10)
		m.Do(call)
		m.Finish(call)
		if got := m.Consumer.BreakerState("compute"); got != want {
			t.Errorf("after status %d the breaker is %d, want %d", call.Status, got, want)
		}
	}
	m.Apps[0].Status = 500
	state(stats.BreakerClosed)
	f.request = func(of *exchange.Exchange) exchange.Next {
		of.Answer(f.says(of, 200))
		return exchange.Decided
	}
	state(stats.BreakerClosed) // the service was not asked: this is no success
	f.request = nil
	state(stats.BreakerOpen)
}
