package fair

import (
	"net/netip"
	"sync"
)

// maxKnown is how many sources of known peers are remembered at least. Twice as many take some 300 KiB.
const maxKnown = 4096

// Known are sources of peers that have proved who they are, the last ones. The zero value
// has none. Any goroutine may call its methods.
type Known struct {
	mu           sync.Mutex
	newer, older map[netip.Addr]struct{}
}

// Add remembers a source. The zero Addr is none.
func (k *Known) Add(source netip.Addr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.newer[source]; known || !source.IsValid() {
		return
	}
	if k.newer == nil || len(k.newer) == maxKnown {
		k.newer, k.older = make(map[netip.Addr]struct{}), k.newer
	}
	k.newer[source] = struct{}{}
}

// Has reports whether a source is remembered.
func (k *Known) Has(source netip.Addr) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, newer := k.newer[source]
	_, older := k.older[source]
	return newer || older
}
