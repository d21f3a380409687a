package otlp

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// testTimeout bounds waits. No result depends on it.
const testTimeout = time.Minute

// binary is the sidecar.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "remora-otlp-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "remora")
	build := exec.Command("go", "build", "-o", binary, "./cmd/remora")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// freeAddr returns an address for one server. A socket that does not listen keeps others away
// until the end of the test.
func freeAddr(t *testing.T) string {
	t.Helper()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(s) })
	if err := syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// start runs a sidecar until the end of the test, and waits until it is ready.
func start(t *testing.T, yaml string) (admin string) {
	t.Helper()
	admin = freeAddr(t)
	file := filepath.Join(t.TempDir(), "remora.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%sadmin: {address: %q}\n", yaml, admin), 0o600); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	cmd := exec.Command(binary, "run", "-c", file)
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s\n%s", yaml, &output)
		}
	})
	eventually(t, "a sidecar to be ready", func() error {
		resp, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", resp.Status)
		}
		return nil
	})
	return admin
}

// eventually polls try until it returns nil.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	end := time.Now().Add(testTimeout)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain: %v", what, err)
		}
		<-look.C
	}
}

// span is a received span, with the node of its resource.
type span struct {
	ptrace.Span
	id, parent, node string
}

// text returns an attribute as text, "" if it is missing.
func (s span) text(key string) string {
	if v, ok := s.Attributes().Get(key); ok {
		return v.AsString()
	}
	return ""
}

func (s span) String() string {
	return fmt.Sprintf("%s<%s %s %s %s %v", s.id, s.parent, s.node, s.Name(), s.Kind(), s.Attributes().AsRaw())
}

// is fails the test unless a span has this kind, node (up to a number) and outcome.
func (s span) is(t *testing.T, kind ptrace.SpanKind, node, outcome string) {
	t.Helper()
	if s.Kind() != kind || !strings.HasPrefix(s.node, node) || s.text("remora.outcome") != outcome ||
		s.EndTimestamp() < s.StartTimestamp() || s.TraceID().String() != theirTrace {
		t.Errorf("%v; want %s of %s, outcome %q", s, kind, node, outcome)
	}
}

type tree []span

// await waits until the receiver has n spans. It fails if there are more.
func await(t *testing.T, sink *consumertest.TracesSink, n int) (all tree) {
	t.Helper()
	eventually(t, "the spans", func() error {
		if got := sink.SpanCount(); got < n {
			return fmt.Errorf("%d of %d are there", got, n)
		}
		return nil
	})
	for _, d := range sink.AllTraces() {
		for _, r := range d.ResourceSpans().All() {
			node, _ := r.Resource().Attributes().Get("service.instance.id")
			for _, s := range r.ScopeSpans().At(0).Spans().All() {
				all = append(all, span{s, s.SpanID().String(), s.ParentSpanID().String(), node.AsString()})
			}
		}
	}
	if len(all) != n {
		t.Fatalf("%d spans, want %d:\n%v", len(all), n, all)
	}
	return all
}

func (l tree) below(parent span) (out tree) {
	for _, s := range l {
		if s.parent == parent.id {
			out = append(out, s)
		}
	}
	return out
}

func (l tree) only(t *testing.T, what string, is func(span) bool) span {
	t.Helper()
	var found tree
	for _, s := range l {
		if is(s) {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d of %s in\n%v", len(found), what, l)
	}
	return found[0]
}
