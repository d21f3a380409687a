package exchange

import "github.com/remora-proxy/remora/proxy/fault"

// Buffered is how many bytes the exchange holds: its request, a bad answer that
// waits for a better one, what its attempts are receiving, and what they have not
// got rid of over HTTP.
func (ex *Exchange) Buffered() int {
	n := ex.Held
	if ex.best != nil {
		n += ex.best.Held
	}
	for i := range ex.attempts[:ex.launched] {
		if a := &ex.attempts[i]; a.carrier != nil {
			n += a.carrier.Buffered(a)
		}
	}
	return n
}

// AbandonNow gives up a withdrawn exchange's attempts, wherever they are.
func (ex *Exchange) AbandonNow() {
	if ex.state == exchangeCancelled {
		ex.onDeadline()
	}
}

// Largest is the connection to an endpoint that holds the most for each of its
// requests, if that is more than rank.
func (s *Service) Largest(rank int) (held, each int, h Holder) {
	each = rank
	for i := range s.set.Len() {
		if n, m, up := s.set.At(i).Ext.(*Endpoint).up.Largest(); up != nil && m > each {
			held, each, h = n, m, up
		}
	}
	return held, each, h
}

// Shed gives the exchange up, at the applications too.
func (ex *Exchange) Shed() {
	if ex.state != exchangeOpen {
		ex.AbandonNow()
		return
	}
	for i := range ex.attempts[:ex.launched] {
		ex.attempts[i].abort()
	}
	ex.fail(fault.Shed)
}
