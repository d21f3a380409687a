// Package history checks what sidecars made of a registry against what the registry had. It does no I/O besides reading and
// writing lines: package record has the watcher of etcd, and asks sidecars for their views.
//
// A history is lines of JSON, in any order and in any number of files: the changes of the registry, in the order of its revisions;
// the views of each sidecar, as its admin API shows them in /endpoints; requests, from its access log; when a sidecar could not reach
// the registry; and who owned which key. Ticks are changes of etcd at a known time: they say between which times another revision was made, however
// late the recorder heard of it. So the checker reports only what is certain.
//
// The rules, by the names that violations have:
//
//	gone     No sidecar uses an endpoint in a view or a request if the registry has had no key of it for longer than Bounds.Seen,
//	         or Bounds.Seen and Bounds.Grace if the service had no key at all.
//	missing  A sidecar has each endpoint in its view whose key the registry has had for longer than Bounds.Seen.
//	empty    A service with a live endpoint is never empty in a view: neither in a view of a revision at which the service had an endpoint,
//	         nor if the service has had one for longer than Bounds.Seen. Nor does a request fail for lack of an endpoint then.
//	back     The views of a service never go back in time: the revisions that they come from do not decrease, also if the sidecar restarts,
//	         and a sidecar that has had the registry's view does not return to its cache.
//	content  A view has exactly the endpoints that the registry had at the revision of the view.
//	return   A key whose owner lives is back within Bounds.Return after it has gone, whoever removed it.
//	record   The recorder has missed no change: each change names the revision of the one before it of the same key.
//
// Time in which a sidecar could not reach the registry does not count: a rule is broken if a sidecar had the whole bound at a stretch
// in which it could. So endpoints that stay in use during an outage are legal, and those of a cache at a start. docs/discovery.md
// has the bounds. A registry that loses its data begins its revisions anew: such a history can't be checked.
package history
