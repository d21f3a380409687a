package exchange

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/service"
)

// TestTogether: requests of the connection at other services, and calls without an exchange, do not count. The count
// ends early.
func TestTogether(t *testing.T) {
	here, elsewhere := new(service.Service), new(service.Service)
	at := func(s *service.Service) *Exchange {
		return &Exchange{passing: passing{admission: admission{Route: &Route{Service: s}, service: s}}}
	}
	ex := &Exchange{passing: passing{admission: admission{Route: &Route{Service: here}}}} // which has not been admitted
	for _, c := range []struct {
		others []*Exchange
		most   int
		want   int
		looks  int // at others
	}{
		{nil, 9, 1, 0},
		{[]*Exchange{ex}, 9, 1, 1},
		{[]*Exchange{ex, nil, at(elsewhere), at(elsewhere)}, 9, 1, 4},
		{[]*Exchange{at(here), ex, at(elsewhere), at(here)}, 9, 3, 4},
		{[]*Exchange{at(here), ex, at(elsewhere), at(here)}, 2, 2, 1},
		{[]*Exchange{ex, at(here), at(here), at(here)}, 3, 3, 3},
	} {
		looks := 0
		n := Together(ex, c.most, func(yield func(*Exchange) bool) {
			for _, other := range c.others {
				if looks++; !yield(other) {
					return
				}
			}
		})
		if n != c.want || looks != c.looks {
			t.Errorf("%d of at most %d, after %d looks, want %d after %d", n, c.most, looks, c.want, c.looks)
		}
	}
}
