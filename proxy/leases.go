package proxy

// Lease implements Leaser.
func (w *Worker) Lease(service string, picked func(l *Lease, at Place, f *Failure)) {
	w.shard.loop.Post(func() {
		svc := w.leasable(service)
		if svc == nil {
			w.shard.stats.failed(FailNoEndpoint)
			picked(nil, Place{}, FailNoEndpoint)
			return
		}
		svc.lease(picked)
	})
}

// leasable is the service that a stream is for. One that has left its loop just
// before the service was removed is served all the same.
func (w *Worker) leasable(name string) *service {
	if s := w.services[name]; s != nil {
		return s
	}
	return w.former[name]
}

// Passed counts a connection that was given to Streams.Pass, or by a driver to the
// same end, and that is open; with f, one that came to nothing. Any goroutine may
// call it.
func (w *Worker) Passed(f *Failure) {
	w.shard.loop.Post(func() {
		if f != nil {
			w.shard.stats.failed(f)
			return
		}
		w.shard.stats.Left[LeftPass]++
	})
}

// Trail begins that of a stream of opaque bytes, or returns nil when there is no
// access log. Any goroutine may call it.
func (w *Worker) Trail(listener, client, service string) *Trail {
	if w.proc.current.Load().lines == nil {
		return nil
	}
	return w.shard.access.opaqueTrail(listener, client, service)
}
