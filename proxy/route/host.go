package route

import (
	"slices"

	"github.com/remora-proxy/remora/internal/hostname"
)

// TakesHost reports whether HTTP requests to the host of an authority may have a route, with
// some path, headers and method other than CONNECT. It tries all routes.
func (t *Table) TakesHost(authority []byte) bool {
	var buf hostname.Buffer
	host := hostname.Of(&buf, authority)
	return slices.ContainsFunc(t.all, func(c *conditions) bool { return c.takesHost(host) && c.takesRequests() })
}

// EachOfHost calls f for each route that takes HTTP requests to the host of an authority, some or
// CONNECT alone, with the index of its first plan, and whether it names the host. f returns false at the end.
func (t *Table) EachOfHost(authority []byte, f func(plan int, named bool) bool) {
	var buf hostname.Buffer
	host := hostname.Of(&buf, authority)
	for _, c := range t.all {
		if c.takesHost(host) && !f(c.index, len(c.host) > 0) {
			return
		}
	}
}

func (c *conditions) takesHost(host []byte) bool {
	return !c.call.callOnly && (len(c.host) == 0 || c.matchHost(host))
}

// takesRequests reports whether there is a method other than CONNECT.
func (c *conditions) takesRequests() bool {
	isRequest := func(method []byte) bool { return string(method) != "CONNECT" }
	return len(c.methods) == 0 || slices.ContainsFunc(c.methods, isRequest)
}
