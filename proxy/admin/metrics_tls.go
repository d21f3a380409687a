package admin

// The families of TLS. Those of certificates have series where TLS is used.
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
