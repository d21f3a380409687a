package etcd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/registry"
)

// TestNames: a zone and a node have a bound. A value beyond it is left out, and not registered.
func TestNames(t *testing.T) {
	full, long := strings.Repeat("n", registry.MaxName), strings.Repeat("n", registry.MaxName+1)
	for _, c := range []struct {
		zone, node string
		isValid    bool
	}{
		{full, full, true}, {long, "", false}, {"", long, false},
	} {
		_, err := decode(fmt.Appendf(nil, `{"Addr":"10.0.0.1:80","Metadata":{"zone":%q,"node":%q}}`, c.zone, c.node), nil)
		_, errWritten := encode(registry.Registration{Addr: "10.0.0.1:80", Zone: c.zone, Node: c.node}, nil)
		if (err == nil) != c.isValid || (errWritten == nil) != c.isValid {
			t.Errorf("%d and %d bytes: %v, %v", len(c.zone), len(c.node), err, errWritten)
		}
	}
}

// TestValue: which values are used, and what for. Metadata that is not an object is another system's.
func TestValue(t *testing.T) {
	const addr = `{"Addr":"10.0.0.1:080"`
	large := addr + `}` + strings.Repeat(" ", maxValue-len(addr)-1)
	plain := registry.Endpoint{Addr: "10.0.0.1:80", Weight: 1}
	heavy := registry.Endpoint{Addr: "10.0.0.1:80", Weight: registry.MaxWeight}
	for value, want := range map[string]registry.Endpoint{ // the zero value means an error
		addr + `}`: plain, addr + `,"Metadata":null}`: plain, addr + `,"Metadata":"{"}`: plain, addr + `,"Metadata":[1]}`: plain, addr + `,"Metadata":{}}`: plain,
		addr + `,"Metadata":{"weight":0}}`: plain, addr + `,"Metadata":{"weight":65536}}`: heavy, addr + `,"Metadata":{"weight":65535}}`: heavy,
		addr + `,"Metadata":{"weight":-1}}`: {}, addr + `,"Metadata":{"weight":"1"}}`: {}, addr + `,"Op":1}`: {}, addr: {}, `{}`: {}, large: plain, large + " ": {},
	} {
		if got, err := decode([]byte(value), nil); got != want || (err != nil) != (want == registry.Endpoint{}) {
			t.Errorf("%.60s of %d bytes: %+v, %v", value, len(value), got, err)
		}
	}
	for weight, isValid := range map[int]bool{-1: false, 0: true, 1: true, registry.MaxWeight: true, registry.MaxWeight + 1: false} {
		if _, err := encode(registry.Registration{Addr: "10.0.0.1:80", Weight: weight}, nil); (err == nil) != isValid {
			t.Errorf("weight %d: %v", weight, err)
		}
	}
	for name, isValid := range map[string]bool{"": false, "/": false, "/a": false, "a/": false, "a": true, "a/b": true} {
		if err := checkService(name); (err == nil) != isValid {
			t.Errorf("service %q: %v", name, err)
		}
	}
}

// FuzzValue decodes any bytes as the value of a key. The decoded endpoint must be
// valid, and encode to a value with the same endpoint.
func FuzzValue(f *testing.F) {
	for _, s := range []string{
		`{"Op":0,"Addr":"10.0.0.5:15006","Metadata":{"weight":3,"zone":"z","protocol":"link","node":"n","other":[1]}}`,
		`{"Op":0,"Addr":"[::FFFF:10.0.0.5]:080","Metadata":null}`, `{"Addr":"host:1","Metadata":"text"}`,
		`{"Op":1,"Addr":"10.0.0.5:15006"}`, `{"Addr":"10.0.0.5:15006","Metadata":{"weight":-1}}`, `{"Addr":"a:1","Metadata":{"protocol":"x"}}`,
	} {
		f.Add([]byte(s))
	}
	protocols := registry.Protocols{"link", "http", "dubbo", "tcp"}
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := decode(value, protocols)
		if err != nil {
			return
		}
		if a, err := registry.ParseAddr(e.Addr); err != nil || a.String() != e.Addr || e.Weight < 1 || e.Weight > registry.MaxWeight {
			t.Fatalf("%q: %+v, %v", value, e, err)
		}
		reg := registry.Registration{Addr: e.Addr, Weight: e.Weight, Zone: e.Zone, Protocol: e.Protocol, Node: e.Node}
		written, err := encode(reg, protocols)
		if err == errLarge {
			return // JSON may be longer than the text
		}
		again, errAgain := decode([]byte(written), protocols)
		if err != nil || errAgain != nil || again != e {
			t.Fatalf("%q: %+v became %q: %+v, %v, %v", value, e, written, again, err, errAgain)
		}
	})
}
