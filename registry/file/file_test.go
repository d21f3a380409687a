package file

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// TestDecode: what a file may say, and what is refused.
func TestDecode(t *testing.T) {
	full := `"10.0.0.1:80"` + strings.Repeat(`,"10.0.0.1:80"`, registry.MaxEndpoints)
	for _, c := range []struct{ name, in, want string }{
		{"nothing", `{}`, "map[]"},
		{"no endpoints", `{"compute": []}`, "map[]"},
		{"an address", `{"compute": ["10.0.0.1:80"]}`, "10.0.0.1:80 1"},
		{"a name", `{"compute": ["Replica.internal:080"]}`, "replica.internal:80 1"},
		{"an object", `{"compute": [{"address": "[::1]:80", "weight": 3, "zone": "a", "protocol": "http"}]}`, "[::1]:80 3 a http"},
		{"null", `null`, "expected an object, got null"},
		{"no object", `["10.0.0.1:80"]`, "cannot unmarshal array"},
		{"cut off", `{"compute": ["10.0.0.1:80"`, "unexpected end"},
		{"an unknown key", `{"compute": [{"address": "10.0.0.1:80", "wieght": 3}]}`, `unknown field "wieght"`},
		{"no port", `{"compute": ["10.0.0.1"]}`, `service "compute", endpoint 1: registry: address is not host:port, but "10.0.0.1"`},
		{"a Unix socket", `{"compute": ["unix:/run/docker.sock"]}`, "address is not host:port"},
		{"no address", `{"compute": [{"weight": 3}]}`, "address is not host:port"},
		{"twice", `{"compute": ["10.0.0.1:80", "10.0.0.1:080"]}`, "endpoint 2: address is listed twice"},
		{"no weight", `{"compute": [{"address": "10.0.0.1:80", "weight": 0}]}`, "weight is not 1 to 65535"},
		{"too heavy", `{"compute": [{"address": "10.0.0.1:80", "weight": 65536}]}`, "weight is not 1 to 65535"},
		{"a weight in text", `{"compute": [{"address": "10.0.0.1:80", "weight": "3"}]}`, "cannot unmarshal string"},
		{"an unknown protocol", `{"compute": [{"address": "10.0.0.1:80", "protocol": "smtp"}]}`, "protocol is none of http"},
		{"a long zone", `{"compute": [{"address": "10.0.0.1:80", "zone": "` + strings.Repeat("z", registry.MaxName+1) + `"}]}`, "zone or node has more than 256 bytes"},
		{"too many", `{"compute": [` + full + `]}`, "more than 10000 endpoints"},
	} {
		lists, err := decode([]byte(c.in), registry.Protocols{"http"})
		got := "map[]"
		if err != nil {
			got = err.Error()
		} else if e := lists["compute"]; len(e) == 1 {
			got = strings.TrimSpace(fmt.Sprint(e[0].Addr, " ", e[0].Weight, " ", e[0].Zone, " ", e[0].Protocol))
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestRefusedFile: an invalid file changes nothing, and the condition says why until a valid one is there.
func TestRefusedFile(t *testing.T) {
	w := newWritten(t)
	replace(t, w.path, `{"compute": ["10.0.0.1:80"], "other": ["10.0.0.2:80"]}`)
	r := open(t, w.path, "")
	defer r.Close()
	compute, other := registrytest.Watch(t, r, "compute"), registrytest.Watch(t, r, "other")
	compute.WaitAddrs("10.0.0.1:80")
	other.WaitAddrs("10.0.0.2:80")

	replace(t, w.path, `{"compute": ["10.0.0.9"], "other": []}`)
	eventually.True(t, "a refusal", func() bool { return !r.Condition().Up })
	if now := r.Condition(); now.Code != registry.CodeInvalid || now.Err == nil {
		t.Errorf("%+v", now)
	}
	late := registrytest.Watch(t, r, "compute")
	late.WaitAddrs("10.0.0.1:80")

	replace(t, w.path, `{"compute": ["10.0.0.3:80"], "other": ["10.0.0.2:80"]}`)
	compute.WaitAddrs("10.0.0.3:80")
	if now := r.Condition(); !now.Up || now.Code != "" || now.Err != nil {
		t.Errorf("a valid file, but %+v", now)
	}
	other.Always("10.0.0.2:80")
}

// TestCoarseClock: a change that leaves the size of the file alone is seen on a file system whose clock ticks every two
// seconds, although the file may have been read within the same tick.
func TestCoarseClock(t *testing.T) {
	path := newWritten(t).path
	r := open(t, path, "")
	defer r.Close()
	s := registrytest.Watch(t, r, "compute")
	for i := range 9 {
		addr, tick := fmt.Sprintf("10.0.0.%d:80", 1+i), time.Now().Truncate(2*time.Second)
		must.WriteFile(t, path, `{"compute": ["`+addr+`"]}`)
		if err := os.Chtimes(path, tick, tick); err != nil {
			t.Fatal(err)
		}
		s.WaitAddrs(addr)
	}
}
