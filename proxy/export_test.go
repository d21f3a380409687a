package proxy

import "github.com/remora-proxy/remora/proxy/exchange"

// SetFilters replaces the list of filters until the returned function is called.
func SetFilters(makers ...exchange.FilterMaker) (undo func()) {
	old := filters
	filters = makers
	return func() { filters = old }
}
