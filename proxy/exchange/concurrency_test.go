package exchange

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/proxy/service"
)

// TestWithOthers: requests of the connection at other services, and calls without an exchange, do not count.
func TestWithOthers(t *testing.T) {
	here, elsewhere := new(service.Service), new(service.Service)
	at := func(s *service.Service) *Exchange {
		return &Exchange{course: course{Route: &Route{Service: s}, service: s}}
	}
	ex := &Exchange{course: course{Route: &Route{Service: here}}} // which has not been admitted
	for _, c := range []struct {
		others []*Exchange
		want   int
	}{
		{nil, 1},
		{[]*Exchange{ex}, 1},
		{[]*Exchange{ex, nil, at(elsewhere), at(elsewhere)}, 1},
		{[]*Exchange{at(here), ex, at(elsewhere), at(here)}, 3},
	} {
		if n := ex.WithOthers(slices.Values(c.others)); n != c.want {
			t.Errorf("%d, want %d", n, c.want)
		}
	}
}
