package route

import "slices"

// TakesHost reports whether requests of HTTP to the host of an authority may have a route, with
// some path, headers and method other than CONNECT. It tries all routes.
func (t *Table) TakesHost(authority []byte) bool {
	host := hostOnly(authority)
	return slices.ContainsFunc(t.all, func(c *conditions) bool { return c.takesHost(host) })
}

func (c *conditions) takesHost(host []byte) bool {
	if c.call.dubboOnly || len(c.host) > 0 && !c.matchHost(host) {
		return false
	}
	isRequest := func(method []byte) bool { return string(method) != "CONNECT" }
	return len(c.methods) == 0 || slices.ContainsFunc(c.methods, isRequest)
}
