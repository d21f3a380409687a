package bindaddr

import "testing"

// TestCovers checks each pair of addresses in both directions.
func TestCovers(t *testing.T) {
	for _, c := range []struct {
		wide, narrow  string
		covers, again bool // again: the other way round
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true, true},
		{"127.0.0.1:80", "[::ffff:127.0.0.1]:80", true, true},
		{":80", "[0::0]:80", true, true},
		{"0.0.0.0:80", "127.0.0.1:80", true, false},
		{"0.0.0.0:80", "127.0.0.1:81", false, false},
		{"0.0.0.0:80", "[::1]:80", false, false},
		{"[::]:80", "[::1]:80", true, false},
		{"[::]:80", "127.0.0.1:80", true, false},
		{":80", "0.0.0.0:80", true, false},
		{"127.0.0.1:80", "127.0.0.2:80", false, false},
		{"127.0.0.1:80", "[::1]:80", false, false},
	} {
		a, oka := Parse(c.wide)
		b, okb := Parse(c.narrow)
		if got, again := Covers(a, b), Covers(b, a); !oka || !okb || got != c.covers || again != c.again {
			t.Errorf("%s and %s: %t, %t", c.wide, c.narrow, got, again)
		}
		if Overlap(a, b) != (c.covers || c.again) {
			t.Errorf("%s and %s: overlap is not covering of either", c.wide, c.narrow)
		}
	}
}

// TestAddresses: what has no address of IP is not compared.
func TestAddresses(t *testing.T) {
	for _, addr := range []string{"localhost:80", "unix:/run/a", "unix:@a", "@a", "/run/a", ""} {
		if at, ok := Parse(addr); ok {
			t.Errorf("%q is %s", addr, at)
		}
	}
}
