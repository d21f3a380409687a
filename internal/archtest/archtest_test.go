package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

const module = "github.com/remora-proxy/remora"

// TestModule checks this module.
func TestModule(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module "+module+"\n") {
		t.Fatalf("%s is not the root of %s: %v", root, module, err)
	}
	files, err := Read(root, module)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found %d files only", len(files))
	}
	for _, wrong := range Check(files) {
		t.Error(wrong)
	}
}

// TestCheck lets each rule pass and fail.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, file, source string
		want               string // in the one complaint; "" means no complaint
	}{
		{"leaf alone", "proxy/config/a.go", `import "os"`, ""},
		{"leaf to leaf", "proxy/handover/a.go", `import "` + module + `/lb"`, "a leaf"},
		{"leaf to core", "lb/a.go", `import "` + module + `/proxy"`, "picking is pure"},
		{"lb to registry", "lb/a.go", `import "` + module + `/registry"`, ""},
		{"core to leaf", "proxy/exchange/a.go", `import "` + module + `/proxy/hedge"`, ""},
		{"core to driver", "proxy/a.go", `import "` + module + `/proxy/reactor"`, "never the other way"},
		{"core to registry client", "proxy/a.go", `import "` + module + `/registry/etcd"`, "never the other way"},
		{"driver to loop", "proxy/reactor/a.go", `import "` + module + `/proxy/loop"`, ""},
		{"driver to core", "proxy/reactor/a.go", `import "` + module + `/proxy"`, "knows nothing of requests"},
		{"driver to driver", "proxy/reactor/a.go", `import "` + module + `/proxy/sim"`, "knows nothing of requests"},
		{"session to upstream", "proxy/downstream/http/a.go", `import "` + module + `/proxy/upstream/http"`, "never an upstream"},
		{"upstream to session", "proxy/upstream/link/a.go", `import "` + module + `/proxy/downstream"`, "never a session"},
		{"new session to its codec", "proxy/downstream/x/a.go", `import "` + module + `/protocol/x"`, ""},
		{"new session to another codec", "proxy/downstream/x/a.go", `import "` + module + `/protocol/http1"`, "its own codec"},
		{"new upstream to its codec", "proxy/upstream/x/a.go", `import "` + module + `/protocol/x"`, ""},
		{"new upstream to a session", "proxy/upstream/x/a.go", `import "` + module + `/proxy/downstream/x"`, "never a session"},
		{"new codec to codec", "protocol/x/a.go", `import "` + module + `/protocol/link"`, "no other codec"},
		{"new source to source", "registry/x/a.go", `import "` + module + `/registry/etcd"`, "no other source"},
		{"folder in a folder", "proxy/upstream/x/y/a.go", ``, "no place in the layers"},
		{"exchange to connection", "proxy/exchange/a.go", `import "` + module + `/proxy/upstream/http"`, "interfaces of caller.go"},
		{"codec to codec", "protocol/http1/a.go", `import "` + module + `/protocol/link"`, "no other codec"},
		{"codec to messages", "protocol/http1/a.go", `import "` + module + `/protocol"`, ""},
		{"messages to codec", "protocol/a.go", `import "` + module + `/protocol/link"`, "no wire format"},
		{"source with dns around it", "registry/static/a.go", `import "` + module + `/registry/dns"`, ""},
		{"source to source", "registry/static/a.go", `import "` + module + `/registry/etcd"`, "no other source"},
		{"dns to source", "registry/dns/a.go", `import "` + module + `/registry/static"`, "it knows none"},
		{"test of a leaf", "lb/a_test.go", `import "` + module + `/proxy/sim"`, ""},
		{"homeless package", "extra/a.go", ``, "no place in the layers"},
		{"module root", "a.go", ``, "no place in the layers"},

		{"yaml at home", "proxy/config/a.go", `import "github.com/goccy/go-yaml"`, ""},
		{"yaml in a test elsewhere", "proxy/sim/a_test.go", `import "github.com/goccy/go-yaml"`, "lives in proxy/config"},
		{"netpoll elsewhere in the lab", "lab/replica/a.go", `import "github.com/cloudwego/netpoll"`, "lives in lab/server"},
		{"netpoll in the sidecar", "proxy/reactor/a.go", `import "github.com/cloudwego/netpoll"`, "lives in lab/server"},
		{"yaml elsewhere", "proxy/admin/a.go", `import "github.com/goccy/go-yaml/ast"`, "lives in proxy/config"},
		{"cobra elsewhere", "lab/a.go", `import "github.com/spf13/cobra"`, "lives in cmd"},
		{"prometheus elsewhere", "proxy/a.go", `import "github.com/prometheus/client_golang/prometheus"`, "lives in proxy/admin"},
		{"buffers in a codec", "protocol/link/a.go", `import "github.com/valyala/bytebufferpool"`, ""},
		{"buffers elsewhere", "lb/a.go", `import "github.com/valyala/bytebufferpool"`, "lives in protocol"},
		{"spans to core", "proxy/telemetry/otlp/a.go", `import "` + module + `/proxy"`, "the core does not know how"},
		{"OpenTelemetry elsewhere", "proxy/a.go", `import "go.opentelemetry.io/proto/otlp/trace/v1"`, "lives in proxy/telemetry/otlp"},
		{"etcd server in the sidecar", "registry/etcd/a.go", `import "go.etcd.io/etcd/server/v3/embed"`, "no etcd server"},
		{"etcd server in its test", "registry/etcd/a_test.go", `import "go.etcd.io/etcd/server/v3/embed"`, ""},
		{"etcd client at home", "registry/etcd/a.go", `import clientv3 "go.etcd.io/etcd/client/v3"`, ""},
		{"hessian2 in the codec's test", "protocol/dubbo/a_test.go", `import hessian "github.com/apache/dubbo-go-hessian2"`, ""},
		{"hessian2 in the codec", "protocol/dubbo/a.go", `import hessian "github.com/apache/dubbo-go-hessian2"`, "lives in protocol/dubbo_test"},
		{"goleak in a test", "lb/a_test.go", `import "go.uber.org/goleak"`, ""},
		{"goleak elsewhere", "lb/a.go", `import "go.uber.org/goleak"`, "in tests"},
		{"unknown library", "lab/a.go", `import "example.com/x"`, "has no home"},

		{"core and net", "proxy/a.go", `import "net"`, "must not import net"},
		{"core and net/netip", "proxy/a.go", `import "net/netip"`, ""},
		{"core and sync", "protocol/link/a.go", `import "sync"`, "must not import sync"},
		{"core and sync/atomic", "proxy/a.go", `import "sync/atomic"`, ""},
		{"core and durations", "lb/a.go", `import "time"; var d = time.Second`, ""},
		{"core and the clock", "lb/a.go", `import "time"; var t = time.Now()`, "must not use time.Now"},
		{"clock by another name", "lb/a.go", `import clock "time"; var t = clock.Now`, "must not use time.Now"},
		{"clock by no name", "lb/a.go", `import . "time"; var t = Now()`, "must not use a dot import"},
		{"core and sleep", "proxy/hedge/a.go", `import "time"; func f() { time.Sleep(1) }`, "must not use time.Sleep"},
		{"core and goroutines", "proxy/a.go", `func f() { go f() }`, "must not use go"},
		{"goroutine in a test", "proxy/a_test.go", `func f() { go f() }`, ""},
		{"clock in a file of the core", "proxy/telemetry/accesslog/log.go", `import "time"; var t = time.Now()`, "must not use time.Now"},
		{"goroutine in a file of the core", "proxy/telemetry/accesslog/stream.go", `func f() { go f() }`, "must not use go"},
		{"clock beside the core", "proxy/telemetry/accesslog/writer.go", `import "time"; var t = time.Now()`, ""},
		{"driver and the clock", "proxy/reactor/a.go", `import "time"; var t = time.Now()`, ""},
	} {
		f, err := ReadFile(c.file, []byte("package a\n"+c.source+"\n"), module)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := Check([]File{f})
		switch {
		case c.want == "" && len(got) > 0:
			t.Errorf("%s: got %q", c.name, got)
		case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
			t.Errorf("%s: got %q, want one with %q", c.name, got, c.want)
		}
	}
}

// TestRead checks which files are read.
func TestRead(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		"go.mod", "lb/a.go", "lb/a_test.go", "lb/notes.txt", "lb/testdata/b.go", ".git/c.go", "other/go.mod", "other/d.go",
	} {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		must.WriteFile(t, full, "package a\n")
	}
	files, err := Read(root, module)
	var got []string
	for i := range files {
		got = append(got, files[i].Path)
	}
	if want := []string{"lb/a.go", "lb/a_test.go"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
