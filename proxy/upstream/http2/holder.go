package http2

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
)

// memory returns the bytes that the connection holds, besides requests.
func (c *conn) memory() int {
	n := c.account.Messages() + c.outbound.Counted()
	for _, s := range c.calls {
		n += s.holds()
	}
	return n
}

// mayHold reports whether the connection may hold n bytes more. While the process is at its hard mark, a
// connection with more than shedding would leave gets none.
func (c *conn) mayHold(n int) bool {
	return !c.shard.OverBudget() || c.memory()+n < shard.LeastShed
}

// ShedLargest implements shard.Holder. It drops the response of which most has arrived.
func (c *conn) ShedLargest() bool {
	var largest *call
	for _, s := range c.calls {
		if largest == nil || s.holds() > largest.holds() {
			largest = s
		}
	}
	if largest == nil || largest.holds() < shard.LeastShed {
		return false
	}
	largest.drop(fault.Shed)
	return true
}

// CloseNow implements shard.Holder.
func (c *conn) CloseNow() { c.close(fault.Reset) }
