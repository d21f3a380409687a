package config

import "testing"

func TestServerName(t *testing.T) {
	for _, c := range []struct{ sni, host, addr, want string }{
		{"", "", "10.0.0.1:443", "10.0.0.1"},
		{"", "", "[::1]:443", "::1"},
		{"", "api.test", "10.0.0.1:443", "api.test"},
		{"fixed.test", "api.test", "10.0.0.1:443", "fixed.test"},
		{SNIHost, "api.test", "10.0.0.1:443", "api.test"},
		{SNIHost, "", "10.0.0.1:443", "10.0.0.1"},
		{"", "", "unix:/a:1", ""},
		{"fixed.test", "", "unix:/a", "fixed.test"},
	} {
		s := ServiceTLS{SNI: c.sni}
		if got := s.ServerName(c.host, c.addr); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	for authority, want := range map[string]string{"": "", "a": "a", "a:1": "a", "[::1]": "::1", "[::1]:1": "::1"} {
		if got := HostOf(authority); got != want {
			t.Errorf("%q: %q, want %q", authority, got, want)
		}
	}
}

// TestPeerNames: which names of peers there can be.
func TestPeerNames(t *testing.T) {
	for name, want := range map[string]bool{
		"spiffe://d": true, "spiffe://d/a": true, "spiffe://d/*": true, "https://d/a/b": true, "dns:a.b": true, "a.b": true, "a": true, "*.b": true, "dns:*.b": true,
		"": false, "*": false, "dns:": false, "*.": false, "*..": false, ".": false, ".b": false, "*b": false, "a.*": false, "*.*.b": false, "a/b": false, "a b": false,
		"a\tb": false, "a:1": false, "dns:dns:a": false, "://d": false, "spiffe://": false, "spiffe:///a": false, "spiffe:///*": false, "spiffe://d/a b": false,
		"spiffe://d/a\t": false, "spiffe://d/*/a": false, "spiffe://*": false, "spiffe://d/a*": false, "s p://d": false, "s*://d": false, "spiffe://d/*/*": false,
	} {
		if got := isPeer(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}
