package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/remora-proxy/remora/internal/printable"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// endpointsBody is the response of /endpoints. The order of the fields is part of the
// format. Services are sorted by name.
type endpointsBody struct {
	Registry      *RegistryStats          `json:"registry,omitempty"`
	Refused       []RefusedEndpoint       `json:"refused,omitempty"`
	Registrations []Registration          `json:"registrations"`
	Services      map[string]ServiceState `json:"services"`
	Sources       []SourceStats           `json:"sources"`
}

// ServiceState is the state of a service in the registry and on all loops.
type ServiceState struct {
	Version   uint64          `json:"version"`            // version of the newest snapshot; 0 if there is none yet
	Applied   uint64          `json:"applied"`            // the oldest version that a loop uses
	Source    string          `json:"source,omitempty"`   // live | cache
	Revision  int64           `json:"revision,omitempty"` // of the source, at which the service had these endpoints; 0 if it is not known
	Changed   *time.Time      `json:"changed,omitempty"`  // when the endpoints last changed
	Pending   int             `json:"pending"`
	Slots     int             `json:"slots"`
	SlotLimit int             `json:"slots_limit"` // 0 means no limit
	Queued    int             `json:"queued"`
	Policy    string          `json:"policy"` // lb.policy
	Panic     bool            `json:"panic"`  // a loop uses all endpoints, because too many are unhealthy or ejected
	Endpoints []EndpointState `json:"endpoints"`
}

// EndpointState is the state of one endpoint of a service.
type EndpointState struct {
	Address     string   `json:"address"`
	Weight      int      `json:"weight"`
	Zone        string   `json:"zone,omitempty"`
	Protocol    string   `json:"protocol"`
	Node        string   `json:"node,omitempty"`
	Host        string   `json:"host,omitempty"`
	Pending     int      `json:"pending"`
	LatencyMS   float64  `json:"latency_ms"`
	State       string   `json:"state"` // one of EndpointStates
	Stalled     bool     `json:"stalled"`
	Failing     bool     `json:"failing,omitempty"` // its last attempts failed, or all that it had
	Healthy     *bool    `json:"healthy,omitempty"` // result of the active health check, if configured
	Ejected     string   `json:"ejected,omitempty"` // reason of a loop that has ejected it: the key of outlier
	Unused      bool     `json:"unused,omitempty"`  // not in lb.subset
	Connections int      `json:"connections"`
	Reported    *float64 `json:"reported,omitempty"` // load from other consumers, if its sidecar has reported it lately
	Attempts    uint64   `json:"attempts"`           // attempts that ended, since the endpoint is known
	Failed      uint64   `json:"failed"`             // of these, status 5xx, or no response by its fault
	Hedges      uint64   `json:"hedges"`             // attempts that were hedges
}

func (s *Server) endpoints(reports []stats.WorkerReport) any {
	body := endpointsBody{
		Registrations: append([]Registration{}, s.opt.Registrations()...), // never null
		Services:      map[string]ServiceState{},
		Sources:       append([]SourceStats{}, s.opt.Sources()...), // never null
	}
	body.Registry = registryOf(body.Sources)
	body.Refused = s.opt.Refused().Endpoints
	for _, svc := range merge(reports) {
		body.Services[svc.Name] = s.serviceState(&svc)
	}
	return &body
}

// serviceState joins the snapshot of the registry with the report of the loops.
func (s *Server) serviceState(svc *stats.ServiceReport) ServiceState {
	p, cfg := s.opt.Process, s.service(svc.Name)
	out := ServiceState{
		Applied: svc.Version, Pending: p.ServicePending(svc.Name), Policy: cfg.LB.Policy, Panic: svc.Panics, Endpoints: []EndpointState{},
	}
	out.Slots, out.Queued = p.Slots(svc.Name)
	out.SlotLimit = p.SlotLimit(svc.Name)
	snap := p.Snapshot(svc.Name)
	if snap == nil {
		return out
	}
	out.Version, out.Source, out.Revision = snap.Version, string(snap.Source), snap.Revision
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
			st.Failing = at.Failing()
			st.Pending, st.LatencyMS, st.Stalled, st.Connections = at.Pending, ms(at.Latency), at.Stalled, at.Connections
			if at.Reported {
				st.Reported = &at.Others
			}
			st.Attempts, st.Failed, st.Hedges = at.Stats.Ended(), at.Stats.Failed(), at.Stats.Hedges
		}
		st.State = EndpointStates[st.Severity()]
		out.Endpoints = append(out.Endpoints, st)
	}
	return out
}

// EndpointStates are the states of an endpoint for people, by Severity.
var EndpointStates = [...]string{"idle", "ok", "unused", "stalled", "failing", "unhealthy", "ejected"}

// Severity returns how bad the state of the endpoint is. An endpoint without any attempt is idle.
func (e *EndpointState) Severity() int {
	switch {
	case e.Ejected != "":
		return 6
	case e.Healthy != nil && !*e.Healthy:
		return 5
	case e.Failing:
		return 4
	case e.Stalled:
		return 3
	case e.Unused:
		return 2
	case e.Attempts == 0 && e.Pending == 0:
		return 0
	}
	return 1
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// reported returns a handler that responds with what body makes of the reports of all
// loops, as JSON with this indentation.
func (s *Server) reported(d stats.Detail, body func([]stats.WorkerReport) any, indent string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reports, err := report(r.Context(), s, d)
		if err != nil {
			unavailable(w, err.Error())
			return
		}
		writeJSON(w, body(reports), indent)
	}
}

// Indentations of JSON.
const (
	forPeople   = "  "
	forPrograms = "" // everything on one line
)

// writeJSON responds with v as JSON.
func writeJSON(w http.ResponseWriter, v any, indent string) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = printable.JSON(w).Write(text.Bytes())
}
