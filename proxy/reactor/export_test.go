package reactor

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// EnvironmentEngine returns the kind that the environment's ENGINE names.
var EnvironmentEngine = environmentEngine

// Blackhole returns an address where a dial never ends.
var Blackhole = blackhole

// RefusingAddr returns an address that refuses every dial.
var RefusingAddr = refusingAddr

// SetHandshakeTimeout changes the time limit of handshakes of accepted connections. It must
// be called before there are any.
func (r *Reactor) SetHandshakeTimeout(d time.Duration) { r.handshakes.timeout = d }

// ListenOn is Listen with all connections on one loop.
func (r *Reactor) ListenOn(l loop.Loop, addr string, o ListenOptions, accept func(l loop.Loop, remote string) loop.Receiver) (*Listener, error) {
	ln, err := Bind(addr)
	if err != nil {
		return nil, err
	}
	return r.serve(ln, o, accept, []*eventLoop{l.(*eventLoop)})
}
