package dubbo

import "github.com/remora-proxy/remora/proxy/loop"

// clientState is the state of a connection to a provider.
//
//	dialing ──────────────────────────▶ open ────read-only───▶ leaving ──last call over──▶ closed
//	   └──▶ probing ──heartbeat response──▲                        ▲
//	           └──read-only──▶ probingLeaving ──heartbeat response──┘
//
// Every state leads to closed when the connection is lost, silent or malformed.
type clientState uint8

const (
	dialing        clientState = iota
	probing                    // the provider was leaving: calls wait until it has responded to a heartbeat
	probingLeaving             // probing, and the provider said again that it is leaving
	open
	leaving // takes no new calls, and closes with the last one: the provider is leaving, or has been silent
	closed
)

var clientEdges = [...][6]bool{
	dialing:        {probing: true, open: true, closed: true},
	probing:        {probingLeaving: true, open: true, closed: true},
	probingLeaving: {leaving: true, closed: true},
	open:           {leaving: true, closed: true},
	leaving:        {closed: true},
	closed:         {},
}

func (s *clientState) become(next clientState) {
	if !clientEdges[*s][next] {
		loop.IllegalState(*s, next)
	}
	*s = next
}

func (s clientState) String() string {
	return [...]string{"dialing", "probing", "probing, leaving", "open", "leaving", "closed"}[s]
}

// sends reports whether calls are sent to the provider in state s.
func (s clientState) sends() bool { return s == open || s == leaving }

// ends reports whether the connection closes with its last call in state s.
func (s clientState) ends() bool { return s == leaving || s == probingLeaving }
