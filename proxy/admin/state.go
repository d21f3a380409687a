package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// endpointsBody is the answer of /endpoints. Field order is that of the JSON;
// services are sorted by name.
type endpointsBody struct {
	Registry      *registryState          `json:"registry,omitempty"`
	Registrations []Registration          `json:"registrations"`
	Services      map[string]ServiceState `json:"services"`
}

type registryState struct {
	Connected bool   `json:"connected"`
	Error     string `json:"error,omitempty"`
}

// ServiceState is one service as the registry and all loops see it.
type ServiceState struct {
	Version   uint64          `json:"version"`           // of the newest snapshot; 0: none yet
	Applied   uint64          `json:"applied"`           // the oldest that a loop works with
	Source    string          `json:"source,omitempty"`  // live | cache
	Changed   *time.Time      `json:"changed,omitempty"` // when the endpoints became what they are
	Pending   int             `json:"pending"`
	Slots     int             `json:"slots"`
	SlotLimit int             `json:"slots_limit"` // 0: none
	Queued    int             `json:"queued"`
	Panic     bool            `json:"panic"` // on some loop: unhealthy and ejected endpoints count as good, being so many
	Endpoints []EndpointState `json:"endpoints"`
}

// EndpointState is one of its endpoints.
type EndpointState struct {
	Address     string   `json:"address"`
	Weight      int      `json:"weight"`
	Zone        string   `json:"zone,omitempty"`
	Protocol    string   `json:"protocol"`
	Node        string   `json:"node,omitempty"`
	Host        string   `json:"host,omitempty"`
	Pending     int      `json:"pending"`
	LatencyMS   float64  `json:"latency_ms"`
	Stalled     bool     `json:"stalled"`
	Healthy     *bool    `json:"healthy,omitempty"` // by its active health check, if there is one
	Ejected     string   `json:"ejected,omitempty"` // by some loop, and why: the outlier key
	Unused      bool     `json:"unused,omitempty"`  // not in lb.subset
	Connections int      `json:"connections"`
	Reported    *float64 `json:"reported,omitempty"` // load of others, if its sidecar said so of late
	Attempts    uint64   `json:"attempts"`           // that ended, since the endpoint is known
	Failed      uint64   `json:"failed"`             // of these: a status of 5xx, or no answer by its fault
	Hedges      uint64   `json:"hedges"`             // attempts that were hedges
}

func (s *Server) endpoints(w http.ResponseWriter, r *http.Request) {
	reports, err := s.report(r.Context())
	if err != nil {
		unavailable(w, []string{err.Error()})
		return
	}
	body := endpointsBody{Registrations: []Registration{}, Services: map[string]ServiceState{}}
	if s.opt.Registry != nil {
		st := s.opt.Registry()
		body.Registry = &registryState{st.Connected, st.LastError}
	}
	if s.opt.Registrations != nil {
		body.Registrations = append(body.Registrations, s.opt.Registrations()...)
	}
	for _, svc := range merge(reports) {
		body.Services[svc.Name] = s.serviceState(&svc)
	}
	writeJSON(w, &body)
}

// ServiceState joins what the registry says about a service with what the loops
// see of it.
func (s *Server) serviceState(svc *stats.ServiceReport) ServiceState {
	p, cfg := s.opt.Process, s.service(svc.Name)
	out := ServiceState{
		Applied: svc.Version, Pending: p.ServicePending(svc.Name), Panic: svc.Panics, Endpoints: []EndpointState{},
	}
	out.Slots, out.Queued = p.Slots(svc.Name)
	out.SlotLimit = p.SlotLimit(svc.Name)
	snap := p.Snapshot(svc.Name)
	if snap == nil {
		return out
	}
	out.Version, out.Source = snap.Version, string(snap.Source)
	if !snap.Changed.IsZero() {
		out.Changed = &snap.Changed
	}
	seen := make(map[string]*stats.EndpointReport, len(svc.Endpoints))
	for i := range svc.Endpoints {
		seen[svc.Endpoints[i].Addr] = &svc.Endpoints[i]
	}
	for _, e := range snap.Endpoints {
		st := EndpointState{
			Address: e.Addr, Weight: e.Weight, Zone: e.Zone, Protocol: e.Protocol, Node: e.Node, Host: e.Host,
		}
		if st.Protocol == "" {
			st.Protocol = cfg.Protocol
		}
		if cfg.Check.Enabled() {
			healthy := !e.Unhealthy
			st.Healthy = &healthy
		}
		st.Unused = cfg.LB.Subset > 0 && seen[e.Addr] == nil
		if at := seen[e.Addr]; at != nil {
			if at.Ejected {
				st.Ejected = at.EjectedBy.String()
			}
			st.Pending, st.LatencyMS, st.Stalled, st.Connections = at.Pending, ms(at.Latency), at.Stalled, at.Connections
			if at.Reported {
				st.Reported = &at.Others
			}
			st.Attempts, st.Failed, st.Hedges = at.Stats.Ended(), at.Stats.Failed(), at.Stats.Hedges
		}
		out.Endpoints = append(out.Endpoints, st)
	}
	return out
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// writeJSON writes v, which holds nothing that can't be encoded, for people too.
func writeJSON(w http.ResponseWriter, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	sendJSON(w, text, err)
}

// writeCompact writes v for programs: on one line.
func writeCompact(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	sendJSON(w, text, err)
}

func sendJSON(w http.ResponseWriter, text []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n'))
}
