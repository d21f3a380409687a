package forwarded

import (
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
)

// TestBelieved checks how much of a list trusted proxies have written.
func TestBelieved(t *testing.T) {
	const from = "10.0.0.1:5000"
	for _, c := range []struct {
		trust      []string // nil means all
		list, want string
	}{
		{nil, "a, b, ", "a, b, "},
		{[]string{"1"}, "a", "a"},
		{[]string{"1"}, "evil, a", "a"},
		{[]string{"1"}, "evil,a ", "a "},
		{[]string{"2"}, "evil, a, b", "a, b"},
		{[]string{"3"}, "a, b", "a, b"},
		{[]string{"1"}, ",a", "a"},
		{[]string{"1"}, "evil,", ""},
		{[]string{"10.0.0.0/8"}, "evil, 192.0.2.1", "192.0.2.1"},
		{[]string{"10.0.0.0/8"}, "evil, 192.0.2.1, 10.1.1.1:80, 10.2.2.2", "192.0.2.1, 10.1.1.1:80, 10.2.2.2"},
		{[]string{"10.0.0.0/8"}, "evil,192.0.2.1,10.1.1.1", "192.0.2.1,10.1.1.1"},
		{[]string{"10.0.0.0/8"}, "10.9.9.9, 10.1.1.1", "10.9.9.9, 10.1.1.1"},
		{[]string{"10.0.0.0/8"}, "10.9.9.9, unknown, 10.1.1.1", "unknown, 10.1.1.1"},
		{[]string{"10.0.0.0/8", "2001:db8::/32"}, "evil, ::1, 2001:db8::7, [2001:db8::8]:80", "::1, 2001:db8::7, [2001:db8::8]:80"},
		{[]string{"10.0.0.0/8"}, "evil, ::1, ::ffff:10.1.1.1", "::1, ::ffff:10.1.1.1"},
	} {
		client := New(&config.Forwarded{Trust: c.trust}, c.trust == nil).Client(from)
		if !client.Trusted {
			t.Errorf("trust %q: %s is not trusted", c.trust, from)
		}
		if got := string(client.Believed([]byte(c.list))); got != c.want {
			t.Errorf("trust %q: of %q %q is believed, want %q", c.trust, c.list, got, c.want)
		}
	}
}

// TestClient checks who is trusted. A Policy that is missing trusts nobody.
func TestClient(t *testing.T) {
	for _, c := range []struct {
		trust    []string
		loopback bool
		remote   string
		want     bool
	}{
		{nil, true, "127.0.0.1:1", true},
		{nil, false, "127.0.0.1:1", false},
		{[]string{"0"}, true, "127.0.0.1:1", false},
		{[]string{"1"}, false, "192.0.2.1:1", true},
		{[]string{"192.0.2.1"}, false, "192.0.2.1:1", true},
		{[]string{"192.0.2.1"}, false, "[::ffff:192.0.2.1]:1", true},
		{[]string{"fe80::/10"}, false, "[fe80::1%eth0]:1", true},
		{[]string{"192.0.2.1"}, true, "192.0.2.2:1", false},
		{[]string{"192.0.2.1"}, true, "", false},
		{[]string{"127.0.0.0/8"}, true, "unix", true},
		{[]string{"192.0.2.1"}, true, "unix", false},
	} {
		client := New(&config.Forwarded{Trust: c.trust}, c.loopback).Client(c.remote)
		if client.Trusted != c.want {
			t.Errorf("trust %q, loopback %v: %q is trusted: %v", c.trust, c.loopback, c.remote, client.Trusted)
		}
	}
	var none *Policy
	client := none.Client("127.0.0.1:1")
	if client.Trusted || client.Judge([]byte("x_forwarded_for")) != Keep {
		t.Error("without a policy a client is trusted, or a header is removed")
	}
}

// TestJudge checks which names are removed, in which spellings.
func TestJudge(t *testing.T) {
	long := "X-" + strings.Repeat("a", 100)
	for _, c := range []struct {
		underscores string
		trust       []string // nil means nobody, and "all" the application itself
		name        string
		want        Verdict
	}{
		{config.UnderscoresKeep, nil, "X-Real-Ip", Remove},
		{config.UnderscoresKeep, nil, "x_REAL_ip", Remove},
		{config.UnderscoresKeep, nil, "x-real_ip", Remove},
		{config.UnderscoresKeep, nil, "x-real-ipx", Keep},
		{config.UnderscoresKeep, nil, "xzrealzip", Keep},
		{config.UnderscoresKeep, nil, "x-rea\x0c-ip", Keep},
		{config.UnderscoresKeep, nil, "X-REAL-IX", Keep},
		{config.UnderscoresKeep, nil, "X-ZONE", Remove},
		{config.UnderscoresKeep, nil, long, Remove},
		{config.UnderscoresKeep, nil, long[1:], Keep},
		{config.UnderscoresKeep, nil, "X_Forwarded-For", Remove},
		{config.UnderscoresKeep, nil, "x_remora_hedge", Remove},
		{config.UnderscoresKeep, nil, "a_b", Keep},
		{config.UnderscoresKeep, nil, "", Keep},
		{config.UnderscoresKeep, []string{"1"}, "X-Real-Ip", Keep},
		{config.UnderscoresKeep, []string{"1"}, "X_Forwarded_For", Remove},
		{config.UnderscoresDrop, []string{"1"}, "a_b", Remove},
		{config.UnderscoresDrop, []string{"1"}, "_a", Remove},
		{config.UnderscoresReject, nil, "a_b", Reject},
		{config.UnderscoresReject, nil, "X_Real_IP", Reject},
		{config.UnderscoresReject, nil, "X-Real-IP", Remove},
		{config.UnderscoresKeep, []string{"all"}, "X_Forwarded_For", Keep},
		{config.UnderscoresDrop, []string{"all"}, "a_b", Remove},
		{config.UnderscoresReject, []string{"all"}, "a_b", Reject},
	} {
		o := config.Forwarded{Trust: c.trust, Strip: []string{"X-Real-IP", "x-zone", long}, Underscores: c.underscores}
		loopback := slices.Equal(c.trust, []string{"all"})
		if loopback {
			o.Trust = nil
		}
		client := New(&o, loopback).Client("10.0.0.1:1")
		if got := client.Judge([]byte(c.name)); got != c.want {
			t.Errorf("%s, trust %q: %q gets %d, want %d", c.underscores, c.trust, c.name, got, c.want)
		}
	}
}

// TestJudgeAllocs checks that headers are judged without allocations.
func TestJudgeAllocs(t *testing.T) {
	client := New(&config.Forwarded{Trust: []string{"1"}, Strip: []string{"X-Real-IP"}, Underscores: config.UnderscoresDrop}, false).Client("10.0.0.1:1")
	name, list := []byte("x-real_ip"), []byte("192.0.2.1, 192.0.2.2")
	if n := testing.AllocsPerRun(100, func() {
		client.Judge(name)
		client.Believed(list)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
