package etcd

import "github.com/remora-proxy/remora/registry"

// Keys returns the watcher of the registered addresses, which calls notify on the
// goroutine that follows the service.
func Keys(r *Registry) registry.Watcher { return keys{r} }
