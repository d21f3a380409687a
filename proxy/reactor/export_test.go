package reactor

import "github.com/remora-proxy/remora/proxy/loop"

// Blackhole is an address that never answers a dial.
var Blackhole = blackhole

// Nobody is an address that refuses every dial.
var Nobody = nobody

// ListenOn is Listen with all connections on one loop.
func (e *Engine) ListenOn(l loop.Loop, addr string, o ListenOptions, accept func(l loop.Loop, remote string) loop.Stream) (*Listener, error) {
	return e.listen(addr, o, accept, []*eventLoop{l.(*eventLoop)})
}
