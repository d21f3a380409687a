// Package sidecar is the running sidecar. Run starts it and obeys signals (run.go). Each of its
// types has one job:
//
//	Sidecar        the parts of a running process, and their end (sidecar.go, drain.go); start.go is
//	               the list of steps in which they start, collector.go says how soon garbage is
//	               collected, and memory.go gives memory back
//	reloads        applies changed configurations, by a change each (reload.go,
//	               reload_listeners.go)
//	succession     takes over from a predecessor (inheritance.go), and hands over to a
//	               successor (succession.go)
//	registrations  this sidecar's own endpoints in the registry (registrations.go), each a
//	               registration (registration.go)
//	sources        endpoints of services (sources.go); discovery has the clients of registries
//	               (registries.go; registry_file.go, registry_kubernetes.go and registry_zookeeper.go make
//	               some of them); reaches has the rules for the addresses of endpoints (reach.go); a keeper keeps
//	               endpoints while host names do not resolve (keeper.go)
//	listeners      open listeners, and those that still accept after a reload (listeners.go), each
//	               an openListener (listener.go); binderror.go says why an address is not bound
//	identities     the certificates of the configuration; clientCerts has those for services
//	               (identities.go)
//	accessLog      the access log, through changes of its settings (accesslog.go); log.go has the
//	               sidecar's own log
//	adminAPI       the admin API and its sockets (adminapi.go)
//	overlays       the revision of the overlay on the file, as etcd has it (overlays.go) and as
//	               it is kept on disk for a start without etcd (overlaykept.go), and what the
//	               sidecar says of itself in etcd (overlaystatus.go)
//	ConfigFile     the configuration file, and when to read it again (configfile.go)
//
// Package proxy lists the stations of a request.
package sidecar
