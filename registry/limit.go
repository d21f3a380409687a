package registry

// Limit keeps a service to MaxEndpoints. The zero value is usable. It is not safe for concurrent use.
type Limit struct{ isLogged bool }

// Cut returns the first MaxEndpoints of the endpoints of a service. It calls warn, a method of slog.Logger, once others are left
// out, and not again until all fit.
func (l *Limit) Cut(endpoints []Endpoint, service string, warn func(msg string, args ...any)) []Endpoint {
	isOver := len(endpoints) > MaxEndpoints
	if isOver && !l.isLogged {
		warn("service has too many endpoints; some are ignored", "service", service, "limit", MaxEndpoints)
	}
	l.isLogged = isOver
	return endpoints[:min(len(endpoints), MaxEndpoints)]
}
