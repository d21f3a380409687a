package exchange

import "github.com/remora-proxy/remora/proxy/loop"

// exchangeState is where an exchange stands.
//
//	idle ──Begin──▶ open ──end──▶ answered ──recycle──▶ idle
//	                  └────end──▶ cancelled ──recycle──▶ idle
type exchangeState uint8

const (
	exchangeIdle      exchangeState = iota // on the free list, or being filled by a session
	exchangeOpen                           // the caller waits
	exchangeAnswered                       // the caller has its response; losers may still be in flight
	exchangeCancelled                      // the caller has gone; attempts are still in flight
)

var exchangeEdges = [...][4]bool{
	exchangeIdle:      {exchangeOpen: true},
	exchangeOpen:      {exchangeAnswered: true, exchangeCancelled: true},
	exchangeAnswered:  {exchangeIdle: true},
	exchangeCancelled: {exchangeIdle: true},
}

func (s *exchangeState) become(next exchangeState) {
	if !exchangeEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s exchangeState) String() string {
	return [...]string{"idle", "open", "answered", "cancelled"}[s]
}
