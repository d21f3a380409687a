package zookeeper

import (
	"net/url"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/registry"
)

// Records of Dubbo 3.3.5.
const (
	realProvider = "dubbo%3A%2F%2F192.0.2.2%3A20880%2Fdemo.Hello%3Fapplication%3Ddemo-provider%26deprecated%3Dfalse%26dubbo%3D2.0.2%26dynamic%3Dtrue%26generic%3Dfalse%26group%3Dg%26interface%3Ddemo.Hello%26methods%3Dhi%26prefer.serialization%3Dhessian2%2Cfastjson2%26release%3D3.3.5%26revision%3D1.0%26service-name-mapping%3Dtrue%26side%3Dprovider%26timestamp%3D1795974931350%26version%3D1.0"
	realInstance = `{"name":"demo-provider","id":"192.0.2.2:20880","address":"192.0.2.2","port":20880,"sslPort":null,"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"192.0.2.2:20880","name":"demo-provider","metadata":{"dubbo.endpoints":"[{\"port\":20880,\"protocol\":\"dubbo\"},{\"port\":50051,\"protocol\":\"tri\"}]","dubbo.metadata-service.url-params":"{\"prefer.serialization\":\"hessian2,fastjson2\",\"version\":\"2.0.0\",\"dubbo\":\"2.0.2\",\"release\":\"3.3.5\",\"side\":\"provider\",\"port\":\"50051\",\"protocol\":\"tri\"}","dubbo.metadata.revision":"9bd37b5d466ae6f683dbd9d1a1e7e235","dubbo.metadata.storage-type":"local","meta-v":"2.0.0","timestamp":"1795974931350"}},"registrationTimeUTC":1795974933546,"serviceType":"DYNAMIC","uriSpec":null}`
)

func TestParseProvider(t *testing.T) {
	for name, c := range map[string]struct {
		name string
		want provider
	}{
		"Dubbo 3.3.5": {realProvider, provider{scheme: "dubbo", addr: "192.0.2.2:20880", group: "g", version: "1.0", weight: 100}},
		"without parameters": {
			url.QueryEscape("tri://h.example:1/a"), provider{scheme: "tri", addr: "h.example:1", weight: 100}},
		"not encoded":        {"dubbo://10.0.0.1:1", provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100}},
		"IPv6 in brackets":   {url.QueryEscape("dubbo://[2001:DB8::1]:20880/a?x=1"), provider{scheme: "dubbo", addr: "[2001:db8::1]:20880", weight: 100}},
		"IPv6 as Dubbo's":    {url.QueryEscape("dubbo://2001:db8:0:0:0:0:0:1:20880/a"), provider{scheme: "dubbo", addr: "[2001:db8::1]:20880", weight: 100}},
		"credentials":        {url.QueryEscape("dubbo://me:se@cret@10.0.0.1:1/a"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100}},
		"disabled":           {url.QueryEscape("dubbo://10.0.0.1:1/a?disabled=true"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100, isDisabled: true}},
		"not enabled":        {url.QueryEscape("dubbo://10.0.0.1:1/a?enabled=false"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100, isDisabled: true}},
		"not disabled":       {url.QueryEscape("dubbo://10.0.0.1:1/a?enabled=false&disabled=false"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100}},
		"weight":             {url.QueryEscape("dubbo://10.0.0.1:1/a?weight=250"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 250}},
		"weight 0":           {url.QueryEscape("dubbo://10.0.0.1:1/a?weight=0"), provider{scheme: "dubbo", addr: "10.0.0.1:1"}},
		"a weight below 0":   {url.QueryEscape("dubbo://10.0.0.1:1/a?weight=-5"), provider{scheme: "dubbo", addr: "10.0.0.1:1"}},
		"a weight of text":   {url.QueryEscape("dubbo://10.0.0.1:1/a?weight=much"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100}},
		"a huge weight":      {url.QueryEscape("dubbo://10.0.0.1:1/a?weight=2147483647"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: maxDubboWeight}},
		"the last of two":    {url.QueryEscape("dubbo://10.0.0.1:1/a?version=1&version=2"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100, version: "2"}},
		"zone and node":      {url.QueryEscape("dubbo://10.0.0.1:1/a?zone=z&remora.node=n"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100, zone: "z", node: "n"}},
		"empty parameters":   {url.QueryEscape("dubbo://10.0.0.1:1/a?&&=&x&group=g&"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100, group: "g"}},
		"the last port":      {"dubbo://10.0.0.1:65535", provider{scheme: "dubbo", addr: "10.0.0.1:65535", weight: 100}},
		"as long as it may":  {"dubbo://10.0.0.1:1/" + strings.Repeat("a", maxURL-19), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100}},
		"category providers": {url.QueryEscape("dubbo://10.0.0.1:1/a?category=providers"), provider{scheme: "dubbo", addr: "10.0.0.1:1", weight: 100}},
	} {
		if got := parseProvider(c.name); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	for _, name := range []string{
		"", "x", "%", "%zz", "://10.0.0.1:1", "dubbo://", "dubbo://:1", "dubbo:///a", "dubbo://10.0.0.1", "dubbo://10.0.0.1:0", "dubbo://10.0.0.1:65536",
		"dubbo://10.0.0.1:-1", "dubbo://10.0.0.1:x", "dubbo://0.0.0.0:1", "dubbo://[::]:1", "dubbo://a b:1", "dubbo://10.0.0.256:1", "dubbo://[::1:1", "dubbo://[::1]",
		"dubbo://10.0.0.1:1?zone=" + strings.Repeat("z", registry.MaxName+1), "dubbo://10.0.0.1:1?remora.node=" + strings.Repeat("n", registry.MaxName+1),
		"dubbo%3A%2F%2Fa%0Ab%3A1", "dubbo://10.0.0.1:1?category=consumers", "dubbo://" + strings.Repeat("a", maxURL) + ":1",
	} {
		if p := parseProvider(name); p.err == nil {
			t.Errorf("%.60q is accepted as %+v", name, p)
		}
	}
}

// TestShown: a log has nothing of a record that may be secret.
func TestShown(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{url.QueryEscape("dubbo://10.0.0.1:1/a?token=secret"), "dubbo://10.0.0.1:1/a"},
		{url.QueryEscape("dubbo://me:secret@10.0.0.1:1/a?x=y@z"), "dubbo://10.0.0.1:1/a"},
		{url.QueryEscape("dubbo://me:1/secret@10.0.0.1:1/a"), "a text of 48 bytes"},
		{url.QueryEscape("dubbo://me:secret?@10.0.0.1:1/a"), "a text of 47 bytes"},
		{url.QueryEscape("dubbo://[2001:db8::1]:1/a?token=secret"), "dubbo://[2001:db8::1]:1/a"},
		{url.QueryEscape("dubbo://10.0.0.1?token=secret"), "dubbo://10.0.0.1:0/"},
		{"%zz?token=secret", "a text of 16 bytes"}, {"token=secret", "a text of 12 bytes"}, {"me:secret", "a text of 9 bytes"},
		{"broken", "broken"}, {"", "a text of 0 bytes"}, {"dubbo://10.0.0.1:0/a", "dubbo://10.0.0.1:0/a"}, {"dubbo://:1/a", "a text of 12 bytes"},
	} {
		got := shown(c.name)
		if strings.Contains(got, "secret") {
			t.Errorf("%s: %s", c.name, got)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestParseInstance(t *testing.T) {
	i := parseInstance(realInstance)
	if i.err != nil || i.host != "192.0.2.2" || i.revision != "9bd37b5d466ae6f683dbd9d1a1e7e235" || i.weight != 100 || len(i.ports) != 2 ||
		i.ports[1] != (instancePort{50051, "tri"}) {
		t.Errorf("%+v", i)
	}
	for _, data := range []string{
		"", "{", "[]", "null", `"x"`, "7", "{}", `{"address":""}`, `{"address":"a b","port":1}`, `{"address":"10.0.0.1","port":99999}`,
		`{"address":["10.0.0.1"]}`, `{"address":"10.0.0.1","payload":[]}`, `{"address":"10.0.0.1","payload":{"metadata":{"dubbo.endpoints":"x"}}}`,
		`{"address":"10.0.0.1","payload":{"metadata":{"dubbo.endpoints":"[` + strings.Repeat("{},", maxPorts) + `{}]"}}}`,
		`{"address":"10.0.0.1","payload":{"metadata":{"zone":"` + strings.Repeat("z", registry.MaxName+1) + `"}}}`,
		strings.Repeat("[", 1<<16),
	} {
		if i := parseInstance(data); i.err == nil {
			t.Errorf("%.80q is accepted as %+v", data, i)
		}
	}
	ports := `{"address":"10.0.0.1","payload":{"metadata":{"dubbo.endpoints":"[` + strings.Repeat("{},", maxPorts-1) + `{}]"}}}`
	for data, weight := range map[string]int{
		`{"address":"10.0.0.1"}`: 100, `{"address":"10.0.0.1","enabled":true}`: 100, `{"address":"10.0.0.1","enabled":false}`: 0, ports: 100,
		`{"address":"10.0.0.1","payload":{"metadata":{"weight":"7"}}}`: 7, `{"address":"10.0.0.1","enabled":false,"payload":{"metadata":{"weight":"7"}}}`: 0,
	} {
		if i := parseInstance(data); i.err != nil || i.weight != weight {
			t.Errorf("%.80s: %+v, want the weight %d", data, i, weight)
		}
	}
	for data, services := range map[string]int{`{"services":{}}`: 0, `{"services":{"a":{},"b":{}}}`: 2, `{}`: -1, `null`: -1, `{"services":{"a":{},"b":7}}`: -1, "": -1} {
		if r := parseRevision(data); (r.err != nil) != (services < 0) || r.err == nil && len(r.services) != services {
			t.Errorf("%s: %+v", data, r)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, has string
		matches   bool
	}{
		{"", "", true}, {"", "g", false}, {"g", "", false}, {"g", "g", true}, {"*", "", true}, {"*", "g", true}, {"a,b", "b", true},
		{"a, b", "b", true}, {"a,b", "c", false}, {"a,b", "", false}, {"a,,b", "", false}, {"", "0.0.0", true}, {"0.0.0", "", true}, {"1.0", "1.0.0", false},
	} {
		if got := matches(c.want, c.has); got != c.matches {
			t.Errorf("%q, %q: %t", c.want, c.has, got)
		}
	}
}

// FuzzRecords reads any text as each kind of record. What is accepted must be a canonical address.
func FuzzRecords(f *testing.F) {
	f.Add(realProvider)
	f.Add(realInstance)
	f.Add(url.QueryEscape("override://0.0.0.0/a?disabled=true&weight=5"))
	f.Add(url.QueryEscape("dubbo://2001:db8::1:20880/a?weight=0&x=%"))
	f.Add(`{"services":{"a":{"name":"a","port":1,"protocol":"dubbo","params":{"weight":"3"}}}}`)
	f.Add("192.0.2.2,a/b,..,a")
	f.Fuzz(func(t *testing.T, text string) {
		canonical := func(addr string) {
			if a, err := registry.ParseAddr(addr); err != nil || a.String() != addr {
				t.Fatalf("%q: address %q", text, addr)
			}
		}
		if p := parseProvider(text); p.err == nil {
			canonical(p.addr)
			if p.weight < 0 || p.weight > maxDubboWeight {
				t.Fatalf("%q: weight %d", text, p.weight)
			}
			if o := parseOverride(text); o.err == nil {
				o.apply(&p)
			}
		}
		if i := parseInstance(text); i.err == nil {
			for _, p := range i.ports {
				if addr, err := i.addr(p.Port); err == nil {
					canonical(addr)
				}
			}
		}
		parseRevision(text)
	})
}
