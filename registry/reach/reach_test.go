package reach

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/registry"
)

func none(*registry.Endpoint) bool { return false }

// TestCheck: the rule, for addresses around each of its borders.
func TestCheck(t *testing.T) {
	allow := func(cidrs ...string) (o Options) {
		for _, c := range cidrs {
			o.Allow = append(o.Allow, netip.MustParsePrefix(c))
		}
		return o
	}
	for _, c := range []struct {
		of   Options
		addr string
		want Reason
	}{
		{Options{}, "10.0.0.1:80", ""},
		{Options{}, "192.168.0.1:80", ""},
		{Options{}, "[fd00::1]:80", ""},
		{Options{}, "unix:///run/app.sock", ""},
		{Options{}, "126.255.255.255:80", ""},
		{Options{}, "127.0.0.0:80", "loopback"},
		{Options{}, "127.255.255.255:80", "loopback"},
		{Options{}, "128.0.0.0:80", ""},
		{Options{}, "0.0.0.0:80", "loopback"},
		{Options{}, "1.0.0.0:80", ""},
		{Options{}, "[::]:80", "loopback"},
		{Options{}, "[::1]:80", "loopback"},
		{Options{}, "[::7f00:1]:80", "loopback"},
		{Options{}, "[::ffff:127.0.0.1]:80", "loopback"},
		{Options{}, "[::ffff:10.0.0.1]:80", ""},
		{Options{}, "169.253.255.255:80", ""},
		{Options{}, "169.254.0.0:80", "link-local"},
		{Options{}, "169.254.169.254:80", "link-local"},
		{Options{}, "169.255.0.0:80", ""},
		{Options{}, "[fe80::1]:80", "link-local"},
		{Options{}, "[febf::1%eth0]:80", "link-local"},
		{Options{}, "[fec0::1]:80", ""},
		{Options{}, "223.255.255.255:80", ""},
		{Options{}, "224.0.0.0:80", "multicast"},
		{Options{}, "[ff02::1]:80", "multicast"},
		{Options{}, "240.0.0.1:80", ""}, // some clusters give it to pods
		{Options{}, "255.255.255.255:80", "broadcast"},
		{Options{}, "100.100.100.200:80", "metadata"},
		{Options{}, "100.100.100.201:80", ""},
		{Options{}, "[fd00:ec2::254]:80", "metadata"},
		{Options{}, "[64:ff9b::a9fe:a9fe]:80", "link-local"},
		{Options{}, "[64:ff9b::a00:1]:80", ""},
		{Options{}, "[64:ff9b:1::a00:1]:80", ""}, // a network behind a translator
		{Options{}, "[2002:7f00:1::1]:80", "loopback"},
		{Options{}, "[2001:db8::5efe:7f00:1]:80", "loopback"},

		{Options{Local: true}, "127.0.0.1:80", ""},
		{Options{Local: true}, "[::1]:80", ""},
		{Options{Local: true}, "169.254.169.254:80", "link-local"},
		{Options{Listed: true}, "127.0.0.1:80", ""},
		{Options{Listed: true}, "169.254.169.254:80", ""},
		{allow("127.0.0.0/8"), "127.0.0.1:80", ""},
		{allow("127.0.0.1/32"), "127.0.0.2:80", "loopback"},
		{allow("0.0.0.0/0", "::/0"), "127.0.0.1:80", "loopback"},
		{allow("0.0.0.0/0", "::/0"), "[::1]:80", "loopback"},
		{allow("169.254.0.0/16"), "169.254.169.254:80", ""},
		{allow("fe80::/10"), "[fe80::1%eth0]:80", ""},
	} {
		if got := New(c.of).Check("s", c.addr, c.of.Listed); got != c.want {
			t.Errorf("%+v: %s is %q, want %q", c.of, c.addr, got, c.want)
		}
	}
}

// TestCheckOwn: what is the sidecar itself is refused, also where special addresses are allowed. What this host lists is not asked
// about.
func TestCheckOwn(t *testing.T) {
	own := func(service string, at netip.AddrPort) Reason {
		if service == "s" && at.Port() == 15001 {
			return Loop
		}
		return ""
	}
	all := Options{Own: own, Local: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, c := range []struct {
		of            Options
		service, addr string
		ofHost        bool
		want          Reason
	}{
		{all, "s", "127.0.0.1:15001", false, Loop},
		{all, "s", "[::ffff:10.0.0.1]:15001", false, Loop},
		{all, "s", "10.0.0.1:15002", false, ""},
		{all, "t", "10.0.0.1:15001", false, ""},
		{Options{Own: own, Listed: true}, "s", "10.0.0.1:15001", true, ""},
		{Options{Own: own, Listed: true}, "s", "10.0.0.1:15001", false, Loop},
		{Options{Own: own, Listed: true}, "s", "127.0.0.1:80", false, "loopback"},
		{Options{Own: own}, "s", "127.0.0.1:80", true, "loopback"},
	} {
		if got := New(c.of).Check(c.service, c.addr, c.ofHost); got != c.want {
			t.Errorf("%s at %s, %t: %q, want %q", c.service, c.addr, c.ofHost, got, c.want)
		}
	}
}

// TestNoRule: a nil Rule permits all.
func TestNoRule(t *testing.T) {
	var rule *Rule
	w := rule.Watch("s", nil)
	defer w.Close()
	rule.JudgeAgain()
	all := []registry.Endpoint{{Addr: "127.0.0.1:80"}}
	if got := w.Permitted(all, nil); len(got) != 1 || rule.Check("s", all[0].Addr, false) != "" || rule.Listed() || len(rule.Refused(1))+len(rule.Counts()) > 0 {
		t.Errorf("permitted are %v", got)
	}
}

// TestTold: an endpoint is logged once and counted each time that it comes, and no flood of them fills the log.
func TestTold(t *testing.T) {
	var log bytes.Buffer
	rule := New(Options{Source: "etcd", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w := rule.Watch("s", nil)
	bad, good := registry.Endpoint{Addr: "127.0.0.1:80", Weight: 1}, registry.Endpoint{Addr: "10.0.0.1:80", Weight: 1}
	for range 3 {
		if got := w.Permitted([]registry.Endpoint{good, bad}, none); len(got) != 1 || got[0] != good {
			t.Fatalf("permitted are %v", got)
		}
		w.Permitted([]registry.Endpoint{good, bad}, none)
		list := []registry.Endpoint{good}
		if got := w.Permitted(list, none); &got[0] != &list[0] {
			t.Error("a list without a refused endpoint is copied")
		}
	}
	if n := rule.Counts()["loopback"]; n != 3 {
		t.Errorf("%d are counted", n)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "code="+Code) || !strings.Contains(text, "reason=loopback") {
		t.Errorf("the log has %q", text)
	}
	log.Reset()
	var many []registry.Endpoint
	for i := range 2 * maxTold {
		many = append(many, registry.Endpoint{Addr: fmt.Sprintf("127.1.%d.%d:80", i/256, i%256)})
	}
	w.Permitted(many, none)
	if n := strings.Count(log.String(), "\n"); n != maxTold-1 {
		t.Errorf("%d lines in the log", n)
	}
	before := rule.Counts()["loopback"]
	for i := range 20 {
		many = append(many, registry.Endpoint{Addr: fmt.Sprintf("127.2.0.%d:80", i)})
	}
	w.Permitted(many, none)
	if n := rule.Counts()["loopback"] - before; n != 20 {
		t.Errorf("%d more are counted, want those that are new", n)
	}
	if now := rule.Refused(10); len(now) != 10 || now[0].Address != "127.1.0.0:80" {
		t.Errorf("refused now are %v", now)
	}
	w.Close()
	if now := rule.Refused(10); len(now) != 0 {
		t.Errorf("after the end of the watch refused are %v", now)
	}
}

// TestPermittedOfHost: of a source that lists addresses itself, only those are judged that it does not list.
func TestPermittedOfHost(t *testing.T) {
	listed := func(e *registry.Endpoint) bool { return e.Host == "listed" }
	all := []registry.Endpoint{{Addr: "127.0.0.1:80", Host: "listed"}, {Addr: "127.0.0.2:80", Host: "dns"}, {Addr: "10.0.0.1:80"}}
	for isListed, want := range map[bool][]registry.Endpoint{true: {all[0], all[2]}, false: {all[2]}} {
		w := New(Options{Listed: isListed}).Watch("s", nil)
		if got := w.Permitted(all, listed); !slices.Equal(got, want) {
			t.Errorf("listed %t: permitted are %v", isListed, got)
		}
		w.Close()
	}
}

// TestRefused: what is refused now is sorted, bounded, and there once, although a service may have two watches for a while.
func TestRefused(t *testing.T) {
	rule := New(Options{})
	for _, service := range []string{"b", "a", "b"} {
		w := rule.Watch(service, nil)
		defer w.Close()
		w.Permitted([]registry.Endpoint{{Addr: "127.0.0.2:80"}, {Addr: "127.0.0.1:80", Host: "h"}}, none)
	}
	want := []Refused{
		{"a", "127.0.0.1:80", "h", "loopback"}, {"a", "127.0.0.2:80", "", "loopback"},
		{"b", "127.0.0.1:80", "h", "loopback"}, {"b", "127.0.0.2:80", "", "loopback"},
	}
	for n := range 6 {
		if got := rule.Refused(n); !slices.Equal(got, want[:min(n, len(want))]) {
			t.Errorf("at most %d: %+v", n, got)
		}
	}
}

// TestJudgeAgain: all watches that are not closed ask again.
func TestJudgeAgain(t *testing.T) {
	rule, asked := New(Options{}), map[string]int{}
	watch := func(service string) *Watch { return rule.Watch(service, func() { asked[service]++ }) }
	a, b := watch("a"), watch("b")
	defer b.Close()
	rule.JudgeAgain()
	a.Close()
	rule.JudgeAgain()
	if asked["a"] != 1 || asked["b"] != 2 {
		t.Errorf("asked %v", asked)
	}
}
