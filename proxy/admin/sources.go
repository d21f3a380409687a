package admin

import (
	"fmt"
	"time"
)

// SourceStats is how a source of endpoints does: a registry, or DNS.
type SourceStats struct {
	Name     string    `json:"name"` // as in discover; or dns
	Up       bool      `json:"up"`   // the source responds, and its responses are valid
	Since    time.Time `json:"since"`
	Code     string    `json:"code,omitempty"`  // of the last failure: see docs/errors.md
	Error    string    `json:"error,omitempty"` // the last failure
	Services int       `json:"services"`        // that are found there
	Kept     int       `json:"kept"`            // endpoints that stay in use although the source does not have them, or is down
	Doubted  int       `json:"doubted"`         // of Services, those with endpoints that the source does not have
	Unusable int       `json:"unusable"`        // records that can't be used, such as malformed ones: the log has an example
}

// SourceDNS is the name of DNS among the sources. DNS is no registry.
const SourceDNS = "dns"

// RegistryStats is the state of all registries together.
type RegistryStats struct {
	Connected bool   `json:"connected"`       // all are up
	LastError string `json:"error,omitempty"` // the failures of those that are down; empty if all are up
}

// registryOf returns the state of all registries together, or nil without one.
func registryOf(sources []SourceStats) (all *RegistryStats) {
	for _, s := range sources {
		if s.Name == SourceDNS {
			continue
		}
		if all == nil {
			all = &RegistryStats{Connected: true}
		}
		all.Connected = all.Connected && s.Up
		if s.Error != "" && all.LastError != "" {
			all.LastError += "; "
		}
		if s.Error != "" {
			all.LastError += s.Name + ": " + s.Error
		}
	}
	return all
}

// String returns the state on one line, for people.
func (s *SourceStats) String() string {
	text := s.Name + " up"
	switch {
	case !s.Up && s.Code == "":
		text = s.Name + " has not responded yet"
	case !s.Up:
		text = fmt.Sprintf("%s down (%s): %s", s.Name, s.Code, s.Error)
	}
	if s.Kept > 0 {
		text += fmt.Sprintf("; %d endpoints kept", s.Kept)
	}
	if s.Unusable > 0 {
		text += fmt.Sprintf("; %d records can't be used", s.Unusable)
	}
	return text
}

// checks returns a line for each source, as Kubernetes has them in its own /readyz?verbose. A source that is down does not
// make the sidecar unready. There is no text of a failure, which may have addresses, because anybody may ask.
func checks(sources []SourceStats) (lines []string) {
	for _, s := range sources {
		switch {
		case !s.Up && s.Code == "":
			lines = append(lines, fmt.Sprintf("[-]%s has not responded yet", s.Name))
		case !s.Up:
			lines = append(lines, fmt.Sprintf("[-]%s failed: %s since %s, %d endpoints stay in use", s.Name, s.Code, s.Since.UTC().Format(time.RFC3339), s.Kept))
		case s.Doubted > 0:
			lines = append(lines, fmt.Sprintf("[+]%s ok: %d endpoints of %d services stay in use for a while, which it does not have", s.Name, s.Kept, s.Doubted))
		default:
			lines = append(lines, fmt.Sprintf("[+]%s ok", s.Name))
		}
	}
	return lines
}

// The families of sources.
var (
	registryUp     = gauge("registry_connected", "1 while all registries respond. Without one it has no series.")
	sourceUp       = gauge("source_up", "1 while the source of endpoints responds, and its responses are valid.", "source")
	sourceChanged  = gauge("source_changed_timestamp_seconds", "When source_up changed last, or when the source was first asked.", "source")
	sourceFailure  = gauge("source_failure", "1 while the source is down, with the [code](errors.md#sources) of its last failure.", "source", "code")
	sourceServices = gauge("source_services", "Services whose endpoints are found there.", "source")
	sourceKept     = gauge("source_endpoints_kept", "Endpoints that stay in use although the source does not have them, or is down.", "source")
	sourceDoubted  = gauge("source_services_doubted", "Services with endpoints that the source does not have: its list is not believed yet.", "source")
	sourceUnusable = gauge("source_records_unusable", "Records that can't be used, such as malformed ones. The log has an example.", "source")
)

func (c *scraper) sources(to *page) {
	all := c.s.opt.Sources()
	if r := registryOf(all); r != nil {
		to.put(registryUp, truth(r.Connected))
	}
	for _, s := range all {
		to.put(sourceUp, truth(s.Up), s.Name)
		to.put(sourceChanged, float64(s.Since.Unix()), s.Name)
		if s.Code != "" {
			to.put(sourceFailure, 1, s.Name, s.Code)
		}
		to.put(sourceServices, float64(s.Services), s.Name)
		to.put(sourceKept, float64(s.Kept), s.Name)
		to.put(sourceDoubted, float64(s.Doubted), s.Name)
		to.put(sourceUnusable, float64(s.Unusable), s.Name)
	}
}
