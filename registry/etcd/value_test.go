package etcd

import (
	"testing"

	"github.com/remora-proxy/remora/registry"
)

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
