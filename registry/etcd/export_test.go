package etcd

import "github.com/remora-proxy/remora/registry"

// Keys returns the watcher of the registered addresses, which calls notify on the goroutine of all watches: a notify that
// waits stops them all.
func Keys(r *Registry) registry.Watcher { return keys{r} }
