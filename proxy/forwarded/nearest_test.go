package forwarded

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// TestNearestClient: only the last entry of the last list counts, whatever the others say.
func TestNearestClient(t *testing.T) {
	for _, c := range []struct {
		name  string
		lists []string
		want  string // "" means none
	}{
		{"no list", nil, ""},
		{"an empty list", []string{""}, ""},
		{"one", []string{"192.0.2.1"}, "192.0.2.1"},
		{"the last entry", []string{"192.0.2.1, 192.0.2.2"}, "192.0.2.2"},
		{"the last list", []string{"192.0.2.1", "192.0.2.2"}, "192.0.2.2"},
		{"spaces", []string{"192.0.2.1 , \t192.0.2.2 "}, "192.0.2.2"},
		{"an empty entry", []string{"192.0.2.1,"}, ""},
		{"a port", []string{"192.0.2.1:80"}, "192.0.2.1"},
		{"IPv6", []string{"2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::"},
		{"IPv6 with a port", []string{"[2001:db8:1:2:3:4:5:6]:80"}, "2001:db8:1:2::"},
		{"IPv4 in IPv6", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"a Unix socket", []string{"unknown"}, ""},
	} {
		hs := []protocol.Header{{Name: []byte("X-Forwarded-Proto"), Value: []byte("192.0.2.9")}}
		for _, list := range c.lists {
			hs = append(hs, protocol.Header{Name: []byte("X-Forwarded-For"), Value: []byte(list)})
		}
		hs = append(hs, protocol.Header{Name: []byte("X-Other"), Value: []byte("192.0.2.9")})
		for _, all := range [][]protocol.Header{hs, hs[1 : len(hs)-1]} { // with others around the lists, and without
			got := NearestClient(all)
			if c.want == "" && got.IsValid() || c.want != "" && got.String() != c.want {
				t.Errorf("%s, %d headers: %s, want %q", c.name, len(all), got, c.want)
			}
		}
	}
}
