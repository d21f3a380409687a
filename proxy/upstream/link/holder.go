package link

import (
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
)

// ShedLargest implements shard.Holder. It drops the response of which most has arrived.
func (c *client) ShedLargest() bool {
	id, n := c.Reader.Largest()
	if n < shard.LeastShed {
		return false
	}
	c.calls.drop(id, fault.Shed)
	return true
}

func (c *client) CloseNow() { c.OnLost() }
