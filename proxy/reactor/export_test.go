package reactor

import "github.com/remora-proxy/remora/proxy"

// Blackhole is an address that never answers a dial.
var Blackhole = blackhole

// Nobody is an address that refuses every dial.
var Nobody = nobody

// ListenOn is Listen with all connections on one loop.
func (e *Engine) ListenOn(l proxy.Loop, addr string, o ListenOptions, accept func(l proxy.Loop, remote string) proxy.Stream) (*Listener, error) {
	return e.listen(addr, o, accept, []*loop{l.(*loop)})
}
