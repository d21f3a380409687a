package route

import (
	"slices"

	"github.com/remora-proxy/remora/protocol"
)

// TakesHost reports whether requests of HTTP to the host of an authority may have a route, with
// some path, headers and method other than CONNECT.
func (t *Table) TakesHost(authority []byte) bool {
	host := hostOnly(authority)
	var lower [maxHost]byte
	return t.paths.takesHost(host) || t.hosts[string(lowerHost(&lower, host))].takesHost(host)
}

func (t pathTable) takesHost(host []byte) bool {
	for i := range t {
		if slices.ContainsFunc(t[i].routes, func(r *conditions) bool { return r.takesHost(host) }) {
			return true
		}
	}
	return false
}

func (c *conditions) takesHost(host []byte) bool {
	if len(c.host) > 0 && !protocol.EqualFold(host, string(c.host)) {
		return false
	}
	isRequest := func(method []byte) bool { return string(method) != "CONNECT" }
	return len(c.methods) == 0 || slices.ContainsFunc(c.methods, isRequest)
}
