// Package sidecar is the running sidecar. Run starts it and obeys signals (run.go). Each of its
// types has one job:
//
//	Sidecar        starts loops, registry clients, admin API, sources and listeners, in this
//	               order (sidecar.go); drains and stops them (drain.go)
//	reloads        applies changed configurations, by a change each (reload.go,
//	               reload_listeners.go)
//	succession     takes over from a predecessor (inheritance.go), and hands over to a
//	               successor (succession.go)
//	registrations  this sidecar's own endpoints in the registry, a registration each
//	sources        endpoints of services; discovery has the clients of registries (registries.go)
//	listeners      open listeners, and those that still accept after a reload
//	identities     the certificates of the configuration; clientCerts has those for services
//	accessLog      the access log, through changes of its settings
//	adminAPI       the admin API and its sockets
//	ConfigFile     the configuration file, and when to read it again
//
// Package proxy lists the stations of a request.
package sidecar
