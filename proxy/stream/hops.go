package stream

import "sync"

// hopSet has the open connections of the sidecar to original destinations. Its zero
// value is empty.
type hopSet struct {
	mu  sync.Mutex
	all map[hop]struct{}
}

func (h *hopSet) add(c hop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[hop]struct{})
	}
	h.all[c] = struct{}{}
}

func (h *hopSet) remove(c hop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, c)
}

func (h *hopSet) has(c hop) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.all[c]
	return ok
}
