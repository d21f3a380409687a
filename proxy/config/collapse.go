package config

// Collapse says whether same requests share one request to the service, and its response.
type Collapse bool

// Enabled reports whether requests are collapsed.
func (c *Collapse) Enabled() bool { return bool(*c) }

func (c *Collapse) given() bool { return c.Enabled() }

func (c *Collapse) sendsTo() string { return "" }

// check reports a route whose requests can't share responses.
func (c *Collapse) check(in scope, at path) { checkSharing(in, at, c.Enabled()) }
