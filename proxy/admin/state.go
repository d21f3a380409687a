package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// config answers with the effective configuration, secrets redacted.
func (s *Server) config(w http.ResponseWriter, _ *http.Request) {
	text, err := s.opt.Config.YAML()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(text)
}

// endpointsBody is the answer of /endpoints. Field order is that of the JSON;
// services are sorted by name.
type endpointsBody struct {
	Registry      *registryState          `json:"registry,omitempty"`
	Registrations []Registration          `json:"registrations"`
	Services      map[string]serviceState `json:"services"`
}

type registryState struct {
	Connected bool   `json:"connected"`
	Error     string `json:"error,omitempty"`
}

type serviceState struct {
	Version   uint64          `json:"version"`           // of the newest snapshot; 0: none yet
	Applied   uint64          `json:"applied"`           // the oldest that a loop works with
	Source    string          `json:"source,omitempty"`  // live | cache
	Changed   *time.Time      `json:"changed,omitempty"` // when the endpoints became what they are
	Pending   int             `json:"pending"`
	Slots     int             `json:"slots"`
	SlotLimit int             `json:"slots_limit"` // 0: none
	Queued    int             `json:"queued"`
	Endpoints []endpointState `json:"endpoints"`
}

type endpointState struct {
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
	Connections int      `json:"connections"`
	Reported    *float64 `json:"reported,omitempty"` // load of others, if its sidecar said so of late
}

func (s *Server) endpoints(w http.ResponseWriter, r *http.Request) {
	reports, err := s.collect(r.Context())
	if err != nil {
		unavailable(w, []string{err.Error()})
		return
	}
	body := endpointsBody{Registrations: []Registration{}, Services: map[string]serviceState{}}
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

// serviceState joins what the registry says about a service with what the loops
// see of it.
func (s *Server) serviceState(svc *proxy.ServiceReport) serviceState {
	p, cfg := s.opt.Process, s.opt.Config.Services[svc.Name]
	out := serviceState{
		Applied: svc.Version, Pending: p.ServicePending(svc.Name), Endpoints: []endpointState{},
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
	seen := make(map[string]*proxy.EndpointReport, len(svc.Endpoints))
	for i := range svc.Endpoints {
		seen[svc.Endpoints[i].Addr] = &svc.Endpoints[i]
	}
	for _, e := range snap.Endpoints {
		st := endpointState{
			Address: e.Addr, Weight: e.Weight, Zone: e.Zone, Protocol: e.Protocol, Node: e.Node, Host: e.Host,
		}
		if st.Protocol == "" {
			st.Protocol = cfg.Protocol
		}
		if cfg.Check.Enabled() {
			healthy := !e.Unhealthy
			st.Healthy = &healthy
		}
		if at := seen[e.Addr]; at != nil {
			st.Pending, st.LatencyMS, st.Stalled, st.Connections = at.Pending, ms(at.Latency), at.Stalled, at.Connections
			if at.Reported {
				st.Reported = &at.Others
			}
		}
		out.Endpoints = append(out.Endpoints, st)
	}
	return out
}

// hedgingBody is the answer of /hedging.
type hedgingBody struct {
	Services map[string]hedgingState `json:"services"`
}

type hedgingState struct {
	Mode     string             `json:"mode"` // the strongest of the routes that lead here
	Requests uint64             `json:"requests"`
	Hedges   uint64             `json:"hedges"`
	Won      uint64             `json:"won"`
	Retries  uint64             `json:"retries"`
	DelayMS  map[string]float64 `json:"delay_ms"` // by route, the longest of all loops
	Gates    map[string]uint64  `json:"gates"`    // decisions not to hedge, by what stopped it
}

func (s *Server) hedging(w http.ResponseWriter, r *http.Request) {
	reports, err := s.collect(r.Context())
	if err != nil {
		unavailable(w, []string{err.Error()})
		return
	}
	body := hedgingBody{Services: map[string]hedgingState{}}
	for _, svc := range merge(reports) {
		st := hedgingState{
			Mode: s.opt.Config.Services[svc.Name].Hedge.Mode, Requests: svc.Stats.Requests, Hedges: svc.Stats.Hedges,
			Won: svc.Stats.HedgesWon, Retries: svc.Stats.Retries,
			DelayMS: map[string]float64{}, Gates: map[string]uint64{},
		}
		strongest := hedge.Off
		for _, rt := range svc.Routes {
			strongest = max(strongest, rt.Mode)
			st.DelayMS[routeName(rt.Route)] = ms(rt.Delay)
		}
		if len(svc.Routes) > 0 {
			st.Mode = strongest.String()
		}
		for g := hedge.Open + 1; int(g) < hedge.Gates; g++ {
			st.Gates[g.String()] = svc.Stats.Gates[g]
		}
		body.Services[svc.Name] = st
	}
	writeJSON(w, &body)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// writeJSON writes v, which holds nothing that can't be encoded.
func writeJSON(w http.ResponseWriter, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n'))
}
