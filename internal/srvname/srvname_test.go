package srvname

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, c := range []struct {
		addr      string
		is, valid bool
	}{
		{"_http._tcp.compute.internal", true, true},
		{"_http._tcp.compute.internal.", true, true},
		{"_HTTP._tcp.c-1.internal", true, true},
		{"_http._tcp", true, false},
		{"_http.compute.internal", true, false},
		{"_http._tcp..internal", true, false},
		{"__._tcp.internal", true, true},
		{"_._tcp.internal", true, false},
		{"_http._tcp.a b", true, false},
		{"_http._tcp." + strings.Repeat("a", 63), true, true},
		{"_http._tcp." + strings.Repeat("a", 64), true, false},
		{"_" + strings.Repeat("a", 62) + "._tcp.internal", true, true},
		{"_" + strings.Repeat("a", 63) + "._tcp.internal", true, false},
		{"_http._tcp" + strings.Repeat(".a", 122), true, false},
		{"_http:80", false, false},
		{"_http._tcp.compute.internal:80", false, false},
		{"compute.internal:80", false, false},
		{"compute.internal", false, false},
	} {
		if got := Is(c.addr); got != c.is {
			t.Errorf("Is(%s) is %t", c.addr, got)
		}
		if err := Check(c.addr); c.is && (err == nil) != c.valid {
			t.Errorf("Check(%s): %v", c.addr, err)
		}
	}
}
