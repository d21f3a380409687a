package exchange

import (
	"iter"

	"github.com/remora-proxy/remora/proxy/fault"
)

// Buffered is the number of bytes that the exchange holds: its request, the best bad
// response so far, and what the carriers of its attempts hold.
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

// overShare reports whether memory is short, and the caller's connection holds more than its share.
func (ex *Exchange) overShare() bool {
	return ex.shard.Process.Budget.Full(ex.Held) && ex.caller.OverShare(ex)
}

// LargestOf returns the exchange that holds the most memory, and the bytes that it holds. Of
// equals it returns the one with the lowest StreamID.
func LargestOf(all iter.Seq[*Exchange]) (ex *Exchange, held int) {
	for other := range all {
		if n := other.Buffered(); n > held || n == held && ex != nil && other.StreamID < ex.StreamID {
			ex, held = other, n
		}
	}
	return ex, held
}

// AbandonNow aborts the attempts of a cancelled exchange.
func (ex *Exchange) AbandonNow() {
	if ex.state == exchangeCancelled {
		ex.onDeadline()
	}
}

// Largest returns the connection to an endpoint that holds the most for each of its
// requests, if that is more than rank bytes; else h is nil.
func (s *Service) Largest(rank int) (held, each int, h Holder) {
	each = rank
	for i := range s.set.Len() {
		if n, m, up := s.set.At(i).Ext.(*Endpoint).upstream.Largest(); up != nil && m > each {
			held, each, h = n, m, up
		}
	}
	return held, each, h
}

// Shed abandons the exchange because memory is short.
func (ex *Exchange) Shed() {
	if ex.state != exchangeOpen {
		ex.AbandonNow()
		return
	}
	for i := range ex.attempts[:ex.launched] {
		ex.attempts[i].abort()
	}
	ex.decide(0) // no filter may keep it
	ex.fail(fault.Shed)
}
