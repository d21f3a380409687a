package exchange

import (
	"iter"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/race"
)

// Caller is the downstream end of an exchange: the session that its request came from. Exactly
// one of Respond and Fail is called, once, unless the session called Cancel before.
type Caller interface {
	// Encode prepares what Respond sends, or returns why the caller can't have res. Respond or Fail of ex follows
	// before any other request is encoded, so the text may wait in memory that the loop's sessions share.
	Encode(ex *Exchange, res *race.Response) *fault.Failure
	// Respond owns res, which Encode has accepted.
	Respond(ex *Exchange, res *race.Response)
	Fail(ex *Exchange, f *fault.Failure)
	// OverShare reports whether ex must be refused, since its connection holds more
	// than its share of memory. OverShare is asked while memory is short.
	OverShare(ex *Exchange) bool
	// Concurrency counts the requests of the connection that are in flight at the service of ex, ex included. Counting
	// may stop at the number most. 0 means that ex is a copy, which no connection waits for. Concurrency is asked while
	// half of max_pending is taken.
	Concurrency(ex *Exchange, most int) int
	// Listener is where the connection came in.
	Listener() *Listener
	// RemoteAddr is the peer's "ip:port".
	RemoteAddr() string
	// PeerNames are the names that the peer has proved; nil means none.
	PeerNames() *identity.Names
	// Finished is called when the last attempt of a cancelled exchange has ended, but
	// not if Cancel reported that none was left. how says how it has ended.
	Finished(ex *Exchange, how race.Ended)
}

// Together counts ex, and the exchanges of others that are in flight at the service of ex, for Caller.Concurrency.
// Counting stops at the number most. others may contain nil, which does not count.
func Together(ex *Exchange, most int, others iter.Seq[*Exchange]) int {
	n := 1
	for other := range others {
		if other != nil && other != ex && other.service == ex.Route.Service {
			if n++; n >= most {
				break
			}
		}
	}
	return n
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
