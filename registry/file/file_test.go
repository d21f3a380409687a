package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/registrytest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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
		{"as heavy as may be", `{"compute": [{"address": "10.0.0.1:80", "weight": 65535}]}`, "10.0.0.1:80 65535"},
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

// TestMost: a service may have so many endpoints, and no more.
func TestMost(t *testing.T) {
	all := []string{}
	for i := range registry.MaxEndpoints {
		all = append(all, fmt.Sprintf(`"10.0.%d.%d:80"`, i/250, i%250))
	}
	for _, more := range []string{"", `,"10.1.0.1:80"`} {
		lists, err := decode([]byte(`{"compute": [`+strings.Join(all, ",")+more+`]}`), nil)
		if isRefused := err != nil; isRefused != (more != "") || !isRefused && len(lists["compute"]) != registry.MaxEndpoints {
			t.Errorf("with %q more: %d endpoints, %v", more, len(lists["compute"]), err)
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

// said counts the lines of a log by their messages.
type said struct {
	slog.Handler
	counts map[string]int
}

func (s *said) Enabled(context.Context, slog.Level) bool { return true }

func (s *said) Handle(_ context.Context, r slog.Record) error {
	s.counts[r.Message]++
	return nil
}

// TestLog: each refusal is logged once for as long as its reason stays, and the next valid file, too.
func TestLog(t *testing.T) {
	log := &said{counts: make(map[string]int)}
	path := newWritten(t).path
	r, err := New(Options{Path: path, Logger: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.tasks.Close() // the test looks
	log.counts = make(map[string]int)
	const refused, valid = "file of endpoints is refused; the last known endpoints stay in use", "file of endpoints is valid again"
	for i, step := range []struct {
		content        string
		refused, valid int
	}{
		{"{", 1, 0}, {"[]", 2, 0}, {"[ ]", 2, 0}, {"{}", 2, 1}, {"{} ", 2, 1}, {"[]", 3, 1}, {"{}", 3, 2},
	} {
		replace(t, path, step.content)
		for range 2 {
			r.read()
		}
		if log.counts[refused] != step.refused || log.counts[valid] != step.valid {
			t.Errorf("step %d: the log has %v, want %d and %d", i, log.counts, step.refused, step.valid)
		}
	}
}

// began is when the tests began.
var began = time.Now()

// touch gives a file the age that it would have had then.
func touch(t *testing.T, path string, age time.Duration) {
	t.Helper()
	at := began.Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// TestSame: which files are looked at again.
func TestSame(t *testing.T) {
	path := newWritten(t).path
	put := func(content string, age time.Duration) os.FileInfo { // into the same file
		t.Helper()
		must.WriteFile(t, path, content)
		touch(t, path, age)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := put("{}", time.Minute)
	for name, c := range map[string]struct {
		now  func() os.FileInfo
		want bool
	}{
		"no change":    {func() os.FileInfo { return put("{}", time.Minute) }, true},
		"another time": {func() os.FileInfo { return put("{}", time.Hour) }, false},
		"another size": {func() os.FileInfo { return put("{} ", time.Minute) }, false},
		"another file": {func() os.FileInfo { replace(t, path, ""); return put("{}", time.Minute) }, false},
	} {
		if got := same(before, c.now()); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		before = put("{}", time.Minute)
	}
}

// TestBackAgain: a file that was away, or could not be opened, is used once it is back, although it has not changed.
func TestBackAgain(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, path string) (giveBack func()){
		"away": func(t *testing.T, path string) func() {
			rename := func(from, to string) {
				if err := os.Rename(from, to); err != nil {
					t.Fatal(err)
				}
			}
			rename(path, path+".away")
			return func() { rename(path+".away", path) }
		},
		"no file can be opened": func(t *testing.T, path string) func() {
			var before syscall.Rlimit
			if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
				t.Fatal(err)
			}
			limit := func(l syscall.Rlimit) {
				if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) }) // whatever becomes of the test
			limit(syscall.Rlimit{Cur: 0, Max: before.Max})
			touch(t, path, time.Hour) // it must be read
			return func() { limit(before) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newWritten(t).path
			must.WriteFile(t, path, `{"compute": ["10.0.0.1:80"]}`)
			touch(t, path, time.Minute)
			r := open(t, path, "")
			defer r.Close()
			eventually.True(t, "a valid file", func() bool { return r.Condition().Up })
			giveBack := take(t, path)
			eventually.True(t, "a failure", func() bool { return !r.Condition().Up })
			giveBack()
			eventually.True(t, "a valid file again", func() bool { return r.Condition().Up })
		})
	}
}

// TestLooks: a file is read once, but in each look while another change may have the same time.
func TestLooks(t *testing.T) {
	for _, c := range []struct {
		age   time.Duration // of the last change
		reads int
	}{
		{time.Hour, 1}, {settled, 1}, {settled - 1, 2}, {0, 1 + int(settled/lookInterval)}, {-lookInterval, 2 + int(settled/lookInterval)}, {-time.Hour, 1},
	} {
		path := newWritten(t).path
		must.WriteFile(t, path, "null")
		synctest.Test(t, func(t *testing.T) {
			at := time.Now().Add(-c.age)
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
			r := open(t, path, "")
			defer r.Close()
			reads := 0
			var last error // another one after each read
			for range 50 {
				synctest.Wait()
				if err := r.Condition().Err; err != last {
					last = err
					reads++
				}
				time.Sleep(lookInterval)
			}
			if reads != c.reads {
				t.Errorf("a file that changed %v ago is read %d times, want %d", c.age, reads, c.reads)
			}
		})
	}
}

// TestLogOfNames: the log has names that don't resolve.
func TestLogOfNames(t *testing.T) {
	w := newWritten(t)
	replace(t, w.path, `{"compute": ["replica.test:80"]}`)
	log := &said{counts: make(map[string]int)}
	r, err := New(Options{Path: w.path, Logger: slog.New(log), DNS: dns.Options{Lookup: func(context.Context, string) (dns.Answer, error) {
		return dns.Answer{}, errors.New("no such host")
	}}})
	if err != nil {
		t.Fatal(err)
	}
	registrytest.Watch(t, r, "compute").WaitAddrs()
	r.Close()
	if log.counts["host name does not resolve; its last addresses stay in use"] == 0 {
		t.Errorf("the log has %v", log.counts)
	}
}

// TestFolder: a folder in place of the file is no file, and is looked at again.
func TestFolder(t *testing.T) {
	path := newWritten(t).path
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	r := open(t, path, "")
	defer r.Close()
	r.tasks.Close() // the test looks
	if r.read() {
		t.Error("a folder was read")
	}
	if now := r.Condition(); now.Up || now.Code != registry.CodeFailed {
		t.Errorf("%+v", now)
	}
}

// TestLarge: a file of maxFile bytes is used, and no larger one.
func TestLarge(t *testing.T) {
	path := newWritten(t).path
	r := open(t, path, "")
	defer r.Close()
	r.tasks.Close() // the test looks
	for more, isUp := range map[int]bool{0: true, 1: false} {
		replace(t, path, "{}"+strings.Repeat(" ", maxFile-2+more))
		r.read()
		if now := r.Condition(); now.Up != isUp || !isUp && (now.Code != registry.CodeInvalid || now.Err.Error() != "file is too large") {
			t.Errorf("%d bytes more: %+v", more, now)
		}
	}
}

// TestDoubted: the condition has what the watches doubt, until they stop.
func TestDoubted(t *testing.T) {
	w := newWritten(t)
	replace(t, w.path, `{"compute": ["10.0.0.1:80"]}`)
	r := open(t, w.path, "")
	defer r.Close()
	s := registrytest.Watch(t, r, "compute")
	s.WaitAddrs("10.0.0.1:80")
	replace(t, w.path, `{}`)
	eventually.True(t, "a doubt", func() bool { now := r.Condition(); return now.Doubted == 1 && now.Kept == 1 })
	s.Stop()
	eventually.True(t, "no watch", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.users) == 0
	})
	if now := r.Condition(); now.Doubted != 0 || now.Kept != 0 {
		t.Errorf("without a watch: %+v", now)
	}
}
