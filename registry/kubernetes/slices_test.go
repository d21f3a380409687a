package kubernetes

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/reach"
)

// TestEndpointsOf: which endpoints the slices of a Service have.
func TestEndpointsOf(t *testing.T) {
	const http = `"ports": [{"name": "http", "port": 80}]`
	slice := func(kind, ports, endpoints string) string {
		return fmt.Sprintf(`{"addressType": %q, %s, "endpoints": [%s]}`, kind, ports, endpoints)
	}
	four := func(endpoints string) string { return slice("IPv4", http, endpoints) }
	at := func(ip, more string) string { return fmt.Sprintf(`{"addresses": [%q]%s}`, ip, more) }
	rule := reach.New(reach.Options{})
	const ending = `, "conditions": {"ready": false, "serving": true, "terminating": true}`
	for _, c := range []struct {
		name, port, zone string
		slices           []string
		want             string
	}{
		{"no slice", "", "", nil, ""},
		{"two", "", "", []string{four(at("10.0.0.1", "") + "," + at("10.0.0.2", `, "zone": "a"`))}, "10.0.0.1:80 10.0.0.2:80 a"},
		{"two slices", "", "", []string{four(at("10.0.0.1", "")), four(at("10.0.0.2", ""))}, "10.0.0.1:80 10.0.0.2:80"},
		{"several addresses of one", "", "", []string{four(`{"addresses": ["10.0.0.1", "10.0.0.2"]}`)}, "10.0.0.1:80"},
		{"no address", "", "", []string{four(`{"addresses": []}`)}, ""},
		{"no address before others", "", "", []string{four(`{"addresses": []},` + at("10.0.0.1", ""))}, "10.0.0.1:80"},
		{"no IP address", "", "", []string{four(at("10.0.0.256", ""))}, ""},
		{"a long zone", "", "", []string{four(at("10.0.0.1", `, "zone": "`+strings.Repeat("z", registry.MaxName+1)+`"`) + "," + at("10.0.0.2", `, "zone": "`+strings.Repeat("z", registry.MaxName)+`"`))},
			"10.0.0.2:80 " + strings.Repeat("z", registry.MaxName)},
		{"a name", "", "", []string{slice("FQDN", http, at("replica.example.org", ""))}, "replica.example.org:80"},

		{"not ready", "", "", []string{four(at("10.0.0.1", `, "conditions": {"ready": false}`) + "," + at("10.0.0.2", `, "conditions": {"ready": true}`))}, "10.0.0.2:80"},
		{"none is ready", "", "", []string{four(at("10.0.0.1", `, "conditions": {"ready": false}`))}, ""},
		{"one ends", "", "", []string{four(at("10.0.0.1", ending) + "," + at("10.0.0.2", ""))}, "10.0.0.2:80"},
		{"all end", "", "", []string{four(at("10.0.0.1", ending) + "," + at("10.0.0.2", `, "conditions": {"ready": false}`))}, "10.0.0.1:80"},
		{"ended", "", "", []string{four(at("10.0.0.1", `, "conditions": {"ready": false, "serving": false, "terminating": true}`))}, ""},

		{"both families of a pod", "", "", []string{slice("IPv6", http, at("fd00::1", `, "targetRef": {"uid": "p1"}`)), four(at("10.0.0.1", `, "targetRef": {"uid": "p1"}`))}, "10.0.0.1:80"},
		{"IPv6 alone", "", "", []string{slice("IPv6", http, at("fd00::1", `, "targetRef": {"uid": "p1"}`))}, "[fd00::1]:80"},
		{"two pods", "", "", []string{slice("IPv6", http, at("fd00::1", `, "targetRef": {"uid": "p2"}`)), four(at("10.0.0.1", `, "targetRef": {"uid": "p1"}`))}, "10.0.0.1:80 [fd00::1]:80"},
		{"no pods", "", "", []string{slice("IPv6", http, at("fd00::1", "")), four(at("10.0.0.1", ""))}, "10.0.0.1:80 [fd00::1]:80"},

		{"a named port", "grpc", "", []string{slice("IPv4", `"ports": [{"name": "http", "port": 80}, {"name": "grpc", "port": 81}]`, at("10.0.0.1", ""))}, "10.0.0.1:81"},
		{"a numbered port", "81", "", []string{slice("IPv4", `"ports": [{"name": "http", "port": 80}, {"name": "grpc", "port": 81}]`, at("10.0.0.1", ""))}, "10.0.0.1:81"},
		{"slices with other numbers", "http", "", []string{four(at("10.0.0.1", "")), slice("IPv4", `"ports": [{"name": "http", "port": 8080}]`, at("10.0.0.2", ""))}, "10.0.0.1:80 10.0.0.2:8080"},
		{"a slice without the port before another", "grpc", "", []string{four(at("10.0.0.1", "")), slice("IPv4", `"ports": [{"name": "grpc", "port": 81}]`, at("10.0.0.2", ""))}, "10.0.0.2:81"},
		{"no such port", "grpc", "", []string{four(at("10.0.0.1", ""))}, ""},
		{"several ports", "", "", []string{slice("IPv4", `"ports": [{"name": "http", "port": 80}, {"port": 81}]`, at("10.0.0.1", ""))}, "several ports; expected one of http, 81 as its port"},
		{"beside UDP", "", "", []string{slice("IPv4", `"ports": [{"name": "http", "port": 80}, {"protocol": "UDP", "port": 81}]`, at("10.0.0.1", ""))}, "10.0.0.1:80"},
		{"any port", "", "", []string{slice("IPv4", `"ports": [{"name": ""}]`, at("10.0.0.1", ""))}, ""},
		{"no ports", "", "", []string{slice("IPv4", `"ports": null`, at("10.0.0.1", ""))}, ""},

		{"hints", "", "a", []string{four(at("10.0.0.1", `, "hints": {"forZones": [{"name": "a"}]}`) + "," + at("10.0.0.2", `, "hints": {"forZones": [{"name": "b"}]}`))}, "10.0.0.1:80"},
		{"hints for several zones", "", "b", []string{four(at("10.0.0.1", `, "hints": {"forZones": [{"name": "a"}, {"name": "b"}]}`) + "," + at("10.0.0.2", `, "hints": {"forZones": [{"name": "b"}]}`))}, "10.0.0.1:80 10.0.0.2:80"},
		{"hints, and no zone", "", "", []string{four(at("10.0.0.1", `, "hints": {"forZones": [{"name": "a"}]}`))}, "10.0.0.1:80"},
		{"one without a hint", "", "a", []string{four(at("10.0.0.1", `, "hints": {"forZones": [{"name": "a"}]}`) + "," + at("10.0.0.2", ""))}, "10.0.0.1:80 10.0.0.2:80"},
		{"no hint for this zone", "", "c", []string{four(at("10.0.0.1", `, "hints": {"forZones": [{"name": "a"}]}`))}, "10.0.0.1:80"},

		{"loopback", "", "", []string{four(at("127.0.0.1", ""))}, ""},
		{"link-local", "", "", []string{four(at("169.254.169.254", ""))}, ""},
		{"loopback in IPv6", "", "", []string{slice("IPv6", http, at("::ffff:127.0.0.1", ""))}, ""},
		{"this host's name", "", "", []string{slice("FQDN", http, at("localhost", ""))}, "localhost:80"}, // refused once it has an address
		{"loopback beside one that ends", "", "", []string{four(at("127.0.0.1", "") + "," + at("10.0.0.1", ending))}, "10.0.0.1:80"},
		{"loopback with the zone's hint", "", "a", []string{four(at("127.0.0.1", `, "hints": {"forZones": [{"name": "a"}]}`) + "," + at("10.0.0.1", `, "hints": {"forZones": [{"name": "b"}]}`))}, "10.0.0.1:80"},
		{"loopback as the IPv4 address of a pod", "", "", []string{
			four(at("127.0.0.1", `, "targetRef": {"uid": "u"}`)), slice("IPv6", http, at("fd00::1", `, "targetRef": {"uid": "u"}`)),
		}, "[fd00::1]:80"},
		{"all addresses", "", "", []string{four(at("0.0.0.0", ""))}, ""},
		{"all addresses beside another", "", "", []string{four(at("0.0.0.0", "") + "," + at("10.0.0.1", ""))}, "10.0.0.1:80"},
	} {
		var all []*endpointSlice
		for _, text := range c.slices {
			s := new(endpointSlice)
			if err := json.Unmarshal([]byte(text), s); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			all = append(all, s)
		}
		endpoints, wrong, err := endpointsOf(all, c.port, c.zone, func(addr string) bool { return rule.Check("compute", addr, false) == "" })
		var got []string
		for _, e := range rule.Watch("compute", nil).Permitted(registry.Normalize(endpoints), nil) {
			if got = append(got, strings.TrimSpace(e.Addr+" "+e.Zone)); e.Weight != 1 {
				t.Errorf("%s: %s has the weight %d", c.name, e.Addr, e.Weight)
			}
		}
		if err != nil {
			got = append(got, err.Error())
		}
		text := strings.Join(c.slices, "")
		if want := strings.Count(text, "0.0.0.0") + strings.Count(text, "10.0.0.256") + strings.Count(text, strings.Repeat("z", registry.MaxName+1)); wrong.count != want {
			t.Errorf("%s: %d endpoints can't be used, want %d", c.name, wrong.count, want)
		}
		if text := strings.Join(got, " "); !strings.HasSuffix(text, c.want) || c.want == "" && text != "" {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// TestWrongEndpoints: the log has the same example of wrong endpoints whatever the order of the slices, so that it is told once.
func TestWrongEndpoints(t *testing.T) {
	if err := (&wrongEndpoints{}).err(); err != nil {
		t.Error(err)
	}
	for _, order := range []string{"b a c", "a b c", "c b a"} {
		var w wrongEndpoints
		for _, addr := range strings.Fields(order) {
			w.add(addr)
		}
		if got := w.err().Error(); got != `3 endpoints have wrong addresses or zones, such as "a"` {
			t.Errorf("%s: %s", order, got)
		}
	}
}

// TestPorts: the port of a slice, by its name, its number, or as the only one.
func TestPorts(t *testing.T) {
	type port = struct {
		Name     string `json:"name"`
		Protocol string `json:"protocol"`
		Port     int    `json:"port"`
	}
	for _, c := range []struct {
		want  string
		ports []port
		found int // -1 means an error
	}{
		{"", []port{{Port: 1}}, 1},
		{"", []port{{Port: 65535, Protocol: "TCP"}}, 65535},
		{"", []port{{Port: 0}, {Port: 65536}, {Port: 53, Protocol: "UDP"}}, 0},
		{"", nil, 0},
		{"", []port{{Port: 80}, {Port: 81}}, -1},
		{"", []port{{Port: 80}, {Port: 53, Protocol: "UDP"}}, 80},
		{"", []port{{Port: 53, Protocol: "UDP"}, {Port: 80}}, 80},
		{"http", []port{{Port: 80}, {Name: "http", Port: 81}, {Name: "http", Port: 82}}, 81},
		{"82", []port{{Port: 80}, {Name: "http", Port: 82}}, 82},
		{"dns", []port{{Name: "dns", Port: 53, Protocol: "UDP"}}, 0},
	} {
		s := &endpointSlice{Ports: c.ports}
		if got, err := s.port(c.want); (err != nil) != (c.found < 0) || err == nil && got != c.found {
			t.Errorf("port %q of %+v: %d, %v", c.want, c.ports, got, err)
		}
	}
}

// TestSliceIndex: an index keeps nothing of a Service whose last slice has gone, or belongs to another Service.
func TestSliceIndex(t *testing.T) {
	x := newSliceIndex()
	for i, step := range []struct {
		put, of, remove string
		want            string // the Services, and how many slices each has
	}{
		{put: "a", of: "s", want: "map[s:1]"}, {put: "b", of: "s", want: "map[s:2]"}, {put: "b", of: "s", want: "map[s:2]"},
		{put: "b", of: "t", want: "map[s:1 t:1]"}, {put: "a", of: "t", want: "map[t:2]"}, {remove: "none", want: "map[t:2]"},
		{remove: "a", want: "map[t:1]"}, {remove: "b", want: "map[]"},
	} {
		if step.put != "" {
			s := new(endpointSlice)
			s.Metadata.Name, s.Metadata.Labels = step.put, map[string]string{serviceLabel: step.of}
			x.put(s)
		}
		x.remove(step.remove)
		counts, all := make(map[string]int), 0
		for service, of := range x.byService {
			counts[service] = len(of)
			all += len(of)
		}
		if got := fmt.Sprint(counts); got != step.want || len(x.byName) != all {
			t.Errorf("step %d: %s, and %d by name; want %s", i, got, len(x.byName), step.want)
		}
	}
}

// TestTooManySlices: changes beyond the bound of a namespace are an error. Those of known slices are none.
func TestTooManySlices(t *testing.T) {
	named := func(name string) *endpointSlice {
		s := new(endpointSlice)
		s.Metadata.Name = name
		return s
	}
	f := &follower{slices: newSliceIndex()}
	for i := range maxSlices {
		if err := f.change(named(strconv.Itoa(i)), false); err != nil {
			t.Fatalf("slice %d: %v", i, err)
		}
	}
	for i, c := range []struct {
		name    string
		deleted bool
		want    error
	}{{"more", false, errTooMany}, {"7", false, nil}, {"none", true, nil}, {"more", false, errTooMany}, {"7", true, nil}, {"more", false, nil}, {"7", false, errTooMany}} {
		if err := f.change(named(c.name), c.deleted); err != c.want {
			t.Errorf("change %d, of %s: %v, want %v", i, c.name, err, c.want)
		}
	}
}
