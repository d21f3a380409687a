package allow

// Rules are those of a request's listener, route and service. A nil Set has no rules.
type Rules struct{ Listener, Route, Service *Set }

// Given reports whether there is any rule.
func (r *Rules) Given() bool { return r.Listener != nil || r.Route != nil || r.Service != nil }

// Enforced reports whether there is a rule that refuses what it does not allow.
func (r *Rules) Enforced() bool {
	return r.Listener.Enforced() || r.Route.Enforced() || r.Service.Enforced()
}

// Refuse reports whether r refuses a call of client. c.Path is as the client sent it.
func (r *Rules) Refuse(c *Call, client string, log Logger) bool {
	if r.Listener.Refuses(c, client, log) || r.Route.Refuses(c, client, log) {
		return true
	}
	if c.Req != nil {
		c.Path = c.Req.Path // which a route may have rewritten
	}
	return r.Service.Refuses(c, client, log)
}
