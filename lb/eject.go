package lb

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
)

func (e *Endpoint) isEjected() bool {
	_, ejected := e.Ejected()
	return ejected
}

func (e *Endpoint) isBad() bool { return e.Unhealthy || e.isEjected() }

// probeDue reports whether an ejected endpoint may get a request, as a probe.
func (e *Endpoint) probeDue(now time.Duration) bool {
	return e.ejection.ProbeDue(now, e.started) && !e.Unhealthy
}

// health ejects and restores the endpoints of a set, and so decides which of them picks avoid.
type health struct {
	rules          *outlier.Rules // Set.Outlier
	panicThreshold float64        // Set.PanicThreshold

	ejected   int // endpoints
	counts    [outlier.Reasons]uint64
	panicking bool           // so many endpoints are bad that none is avoided
	means     []outlier.Mean // scratch of ejectSlow
}

// reserve makes room for so many endpoints.
func (h *health) reserve(n int) { h.means = make([]outlier.Mean, 0, n) }

// failed notes that an attempt at e, which is not ejected, was bad.
func (h *health) failed(now time.Duration, e *Endpoint, of *groups) {
	if why, ok := h.rules.Failing(&e.record); ok {
		h.eject(now, e, why, of)
	}
}

// probed notes the outcome of an attempt at the ejected e. It reports whether e is restored: then its record begins anew.
func (h *health) probed(now time.Duration, e *Endpoint, good bool, of *groups) (restored bool) {
	why, _ := e.Ejected()
	switch {
	case !e.ejection.Over(now): // the attempt started before the ejection
		return false
	case !good:
		h.counts[why]++
		e.ejection.Extend(now, h.rules.Base)
		return false
	}
	h.ejected--
	e.ejection.End(now)
	e.record.Clear()
	e.discount = 1
	h.avoid(of)
	return true
}

// eject ejects e, unless that would be too many of all endpoints.
func (h *health) eject(now time.Duration, e *Endpoint, why outlier.Reason, of *groups) {
	if h.ejected >= h.rules.Most(len(of.all.endpoints)) {
		return
	}
	h.ejected++
	h.counts[why]++
	e.ejection.Begin(now, h.rules.Base, why)
	h.avoid(of)
}

// ejectSlow ejects the endpoints that were slow for their whole record, slowest first.
func (h *health) ejectSlow(now time.Duration, of *groups) {
	if h.rules.Latency <= 0 {
		return
	}
	all, means := of.all.endpoints, h.means[:0]
	for i, e := range all {
		if mean, ok := e.record.Mean(); ok && !e.isEjected() {
			means = append(means, outlier.Mean{Index: i, Latency: mean})
		}
	}
	for _, m := range slices.Backward(h.rules.Slow(means)) {
		h.eject(now, all[m.Index], outlier.ByLatency, of)
	}
}

// limit counts the ejected endpoints after a change of endpoints or rules. Those beyond the limit, the last
// of all, are ejected no longer.
func (h *health) limit(of *groups) {
	all := of.all.endpoints
	h.ejected = 0
	for _, e := range all {
		switch {
		case !e.isEjected():
		case h.ejected < h.rules.Most(len(all)):
			h.ejected++
		default:
			e.ejection.Cancel()
		}
	}
	h.avoid(of)
}

// avoid makes picks avoid unhealthy and ejected endpoints, unless these are more than a share of all.
func (h *health) avoid(of *groups) {
	all, bad := of.all.endpoints, 0
	for _, e := range all {
		if e.isBad() {
			bad++
		}
	}
	n, share := len(all), h.panicThreshold
	h.panicking = bad > 0 && (bad == n || share > 0 && float64(bad) > share*float64(n))
	for _, e := range all {
		e.avoided = e.isBad() && !h.panicking
	}
	of.updateAvoided(h.panicking)
}
