package admin

// The families of the registry. Without one they have no series.
var (
	registryUp   = gauge("registry_connected", "1 while the registry responds.")
	registration = gauge("registration_state", "1 for the current state of a registration.", "service", "address", "state")
)

func (c *collector) registry(to *page) {
	if c.s.opt.Registry != nil {
		to.put(registryUp, truth(c.s.opt.Registry().Connected))
	}
	if c.s.opt.Registrations == nil {
		return
	}
	for _, r := range c.s.opt.Registrations() {
		to.put(registration, 1, r.Service, r.Address, r.State)
	}
}

// The families of TLS. Those of certificates have series if TLS is used.
var (
	handshakes  = counter("tls_handshakes_total", "Successful TLS handshakes, accepted and dialled.")
	tlsFailures = counter("tls_failures_total", "Refused or broken TLS connections, by the code in the log.", "code")
	certReloads = counter("tls_certificate_loads_total", "Loads of certificate files, the first included.", "identity")
	certBroken  = counter("tls_certificate_load_failures_total", "Failed loads of changed certificate files.", "identity")
	certExpiry  = gauge("tls_certificate_expiry_timestamp_seconds", "End of the certificate in use.", "identity")
)

func (c *collector) tls(to *page) {
	st := c.s.opt.Reactor()
	to.put(handshakes, float64(st.Handshakes))
	for code, n := range st.TLSFailures {
		to.put(tlsFailures, float64(n), code)
	}
	if c.s.opt.Identities == nil {
		return
	}
	for _, id := range c.s.opt.Identities() {
		to.put(certReloads, float64(id.Loads), id.Name)
		to.put(certBroken, float64(id.Failures), id.Name)
		if !id.Expires.IsZero() {
			to.put(certExpiry, float64(id.Expires.Unix()), id.Name)
		}
	}
}

// The families of reloads.
var (
	generation = gauge("config_generation", "The configuration in use, counted from 1 at the start.")
	configured = gauge("config_applied_timestamp_seconds", "When it came into use.")
	reloads    = counter("config_reloads_total", "Reloads: applied, unchanged, or the code of the refusal.", "outcome")
)

func (c *collector) reloads(to *page) {
	to.put(generation, float64(c.s.opt.Process.Generation().Number()))
	if c.s.opt.Reloads == nil {
		return
	}
	st := c.s.opt.Reloads()
	to.put(configured, float64(st.Since.UnixMilli())/1e3)
	for outcome, n := range st.Outcomes {
		to.put(reloads, float64(n), outcome)
	}
}

// TracingStats has the fields of otlp.Stats.
type TracingStats struct {
	Exported uint64 // accepted by the receiver
	Full     uint64 // dropped because the queue was full
	Lost     uint64 // dropped because the receiver did not accept them
}

// The families of tracing.
var (
	spansExported = counter("tracing_spans_exported_total", "Spans accepted by the receiver.")
	spansDropped  = counter("tracing_spans_dropped_total",
		"Lost spans: too many waited (queue), or the receiver did not accept them (export).", "reason")
)

func (c *collector) tracing(to *page) {
	if c.s.opt.Tracing == nil {
		return
	}
	st := c.s.opt.Tracing()
	to.put(spansExported, float64(st.Exported))
	to.put(spansDropped, float64(st.Full), "queue")
	to.put(spansDropped, float64(st.Lost), "export")
}

// AccessLogStats has the counts of the access log since the start, over all
// configurations.
type AccessLogStats struct {
	Lines    uint64 // written lines
	Overflow uint64 // lines dropped because access_log.buffer was full
	Lost     uint64 // lines dropped because a write failed
	Errors   uint64 // failed writes and reopenings
}

// The families of the access log.
var (
	accessLines   = counter("access_log_lines_total", "Written lines of the access log.")
	accessDropped = counter("access_log_dropped_total",
		"Dropped lines: access_log.buffer was full (overflow), or a write failed (write).", "reason")
	accessErrors = counter("access_log_errors_total", "Failed writes and reopenings of the access log.")
)

func (c *collector) accessLog(to *page) {
	if c.s.opt.AccessLog == nil {
		return
	}
	st := c.s.opt.AccessLog()
	to.put(accessLines, float64(st.Lines))
	to.put(accessDropped, float64(st.Overflow), "overflow")
	to.put(accessDropped, float64(st.Lost), "write")
	to.put(accessErrors, float64(st.Errors))
}
