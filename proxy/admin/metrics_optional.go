package admin

import "github.com/remora-proxy/remora/proxy/allow"

// The families of registries. Without one they have no series.
var (
	unreached    = counter("endpoints_refused_total", "Endpoints of a registry that are not used, by the reason in the log.", "source", "reason")
	registration = gauge("registration_state", "1 for the current state of a registration.", "service", "address", "state")
)

func (c *scraper) registrations(to *page) {
	for _, n := range c.s.opt.Refused().Counts {
		to.put(unreached, float64(n.Endpoints), n.Source, n.Reason)
	}
	for _, r := range c.s.opt.Registrations() {
		to.put(registration, 1, r.Service, r.Address, r.State)
	}
}

// The families of TLS. Those of certificates have series if TLS is used.
var (
	handshakes  = counter("tls_handshakes_total", "Successful TLS handshakes, accepted and dialled.")
	resumed     = counter("tls_resumed_total", "Of these, those that resumed a session.")
	tlsFailures = counter("tls_failures_total", "Refused or broken TLS connections, by the code in the log.", "code")
	certReloads = counter("tls_certificate_loads_total", "Loads of certificate files, the first included.", "identity")
	certBroken  = counter("tls_certificate_load_failures_total", "Failed loads of changed certificate files.", "identity")
	certBegin   = gauge("tls_certificate_start_timestamp_seconds", "Begin of the certificate in use that ends first.", "identity")
	certExpiry  = gauge("tls_certificate_expiry_timestamp_seconds", "Its end.", "identity")
	crlOutdated = gauge("tls_crl_next_update_timestamp_seconds", "When the first revocation list in use is outdated.", "identity")
)

func (c *scraper) tls(to *page) {
	st := c.s.opt.Reactor()
	to.put(handshakes, float64(st.Handshakes))
	to.put(resumed, float64(st.Resumed))
	for code, n := range st.TLSFailures {
		to.put(tlsFailures, float64(n), code)
	}
	for _, id := range c.s.opt.Identities() {
		to.put(certReloads, float64(id.Loads), id.Name)
		to.put(certBroken, float64(id.Failures), id.Name)
		if !id.Expires.IsZero() {
			to.put(certBegin, float64(id.Begins.Unix()), id.Name)
			to.put(certExpiry, float64(id.Expires.Unix()), id.Name)
		}
		if !id.Outdates.IsZero() {
			to.put(crlOutdated, float64(id.Outdates.Unix()), id.Name)
		}
	}
}

// The family of allow rules. It has series for the rules of the configuration.
var allowed = counter("allow_total", "Requests and opaque streams, by the rule that allows them. With the rule none: those that no rule allows, refused or only counted.",
	"rules", "rule", "verdict")

func (c *scraper) allow(to *page) {
	for _, n := range c.s.opt.Process.Generation().RuleCounts() {
		verdict := "allowed"
		switch {
		case n.Rule != allow.NoRule:
		case n.Enforced:
			verdict = "refused"
		default:
			verdict = "counted"
		}
		to.put(allowed, float64(n.Calls), n.Set, n.Rule, verdict)
	}
}

// The families of reloads.
var (
	generation = gauge("config_generation", "The configuration in use, counted from 1 at the start.")
	configured = gauge("config_applied_timestamp_seconds", "When it came into use.")
	reloads    = counter("config_reloads_total", "Reloads: applied, unchanged, or the code of the refusal.", "outcome")
)

func (c *scraper) reloads(to *page) {
	to.put(generation, float64(c.s.opt.Process.Generation().Number()))
	st := c.s.opt.Reloads()
	to.put(configured, float64(st.Since.UnixMilli())/1e3)
	for outcome, n := range st.Outcomes {
		to.put(reloads, float64(n), outcome)
	}
}

// The families of the overlay. Without config they have no series.
var (
	overlayRevision = gauge("fleet_revision", "The revision of the overlay in use; 0 for the file alone.")
	overlayRefused  = gauge("fleet_refused_revision", "The revision of the overlay that should be in use, and was refused; -1 if there is none.")
)

func (c *scraper) overlay(to *page) {
	if c.s.opt.Overlay == nil {
		return
	}
	st := c.s.opt.Overlay()
	to.put(overlayRevision, float64(st.Revision))
	refused := st.Refused
	if st.Code == "" {
		refused = -1
	}
	to.put(overlayRefused, float64(refused))
}

// The families of tracing.
var (
	spansExported = counter("tracing_spans_exported_total", "Spans accepted by the receiver.")
	spansDropped  = counter("tracing_spans_dropped_total",
		"Lost spans: too many waited (queue), or the receiver did not accept them (export).", "reason")
)

func (c *scraper) tracing(to *page) {
	st := c.s.opt.Tracing()
	to.put(spansExported, float64(st.Exported))
	to.put(spansDropped, float64(st.Full), "queue")
	to.put(spansDropped, float64(st.Lost), "export")
}

// The families of the access log.
var (
	accessLines   = counter("access_log_lines_total", "Written lines of the access log.")
	accessDropped = counter("access_log_dropped_total",
		"Dropped lines: access_log.buffer was full (overflow), or a write failed (write).", "reason")
	accessErrors = counter("access_log_errors_total", "Failed writes and reopenings of the access log.")
)

func (c *scraper) accessLog(to *page) {
	st := c.s.opt.AccessLog
	to.put(accessLines, float64(st.Lines.Load()))
	to.put(accessDropped, float64(st.Overflow.Load()), "overflow")
	to.put(accessDropped, float64(st.Lost.Load()), "write")
	to.put(accessErrors, float64(st.Errors.Load()))
}

// The families of what the process can run out of.
var (
	overloadState = gauge("overload_state", "0 normal, 1 shedding, 2 refusing.")
	overloadUsed  = gauge("overload_used", "Use of a resource.", "resource")
	overloadLimit = gauge("overload_limit", "Its limit, 0 without one.", "resource")
)

func (c *scraper) overload(to *page) {
	state, _ := c.s.opt.Overload.State()
	to.put(overloadState, float64(state))
	for _, r := range c.s.opt.Overload.Resources() {
		to.put(overloadUsed, float64(r.Used()), r.Name)
		to.put(overloadLimit, float64(r.Limit()), r.Name)
	}
}
