package http2

import (
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// memory returns the bytes that the connection holds, besides requests.
func (c *conn) memory() int {
	n := c.held + c.outbound.Counted()
	for _, s := range c.calls {
		n += s.holds()
	}
	return n
}

// ShedLargest implements exchange.Holder. It drops the response of which most has arrived.
func (c *conn) ShedLargest() bool {
	var largest *call
	for _, s := range c.calls {
		if s.attempt != nil && s.st != nil && (largest == nil || s.holds() > largest.holds()) {
			largest = s
		}
	}
	if largest == nil || largest.holds() < exchange.LeastShed {
		return false
	}
	largest.reset(http2.Cancel)
	largest.fail(fault.Shed)
	c.shard.Loop.Defer(&c.out)
	return true
}

// CloseNow implements exchange.Holder.
func (c *conn) CloseNow() { c.close(fault.Reset) }
