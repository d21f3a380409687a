package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestNewSnapshot(t *testing.T) {
	s := NewSnapshot("s", SourceLive, time.Now(), []Endpoint{
		{Addr: "b:1", Weight: -4}, {Addr: "a:1", Weight: MaxWeight + 1, Node: "first"}, {Addr: "a:1", Node: "second"},
		{Addr: "c:1", Weight: MaxWeight}, {Addr: "d:1", Weight: 5000},
	})
	want := []Endpoint{
		{Addr: "a:1", Weight: MaxWeight, Node: "first"}, {Addr: "b:1", Weight: 1}, {Addr: "c:1", Weight: MaxWeight}, {Addr: "d:1", Weight: 5000},
	}
	if !slices.Equal(s.Endpoints, want) {
		t.Errorf("got %+v, want %+v", s.Endpoints, want)
	}
	if later := NewSnapshot("s", SourceLive, time.Now(), nil); later.Version <= s.Version {
		t.Errorf("version %d after %d", later.Version, s.Version)
	}
}

// TestNormalize: one fault is enough for a list to be put right.
func TestNormalize(t *testing.T) {
	for _, c := range []struct {
		name       string
		list, want []Endpoint
	}{
		{"none", nil, nil},
		{"one", []Endpoint{{Addr: "a", Weight: MaxWeight}}, []Endpoint{{Addr: "a", Weight: MaxWeight}}},
		{"not sorted", []Endpoint{{Addr: "b", Weight: 1}, {Addr: "a", Weight: 2}}, []Endpoint{{Addr: "a", Weight: 2}, {Addr: "b", Weight: 1}}},
		{"twice", []Endpoint{{Addr: "a", Weight: 2}, {Addr: "a", Weight: 1}}, []Endpoint{{Addr: "a", Weight: 2}}},
		{"no weight", []Endpoint{{Addr: "a"}, {Addr: "b", Weight: 1}}, []Endpoint{{Addr: "a", Weight: 1}, {Addr: "b", Weight: 1}}},
		{"too heavy", []Endpoint{{Addr: "a", Weight: MaxWeight + 1}}, []Endpoint{{Addr: "a", Weight: MaxWeight}}},
	} {
		if got := Normalize(c.list); !slices.Equal(got, c.want) || cap(got) != len(got) {
			t.Errorf("%s: %+v with room for %d, want %+v", c.name, got, cap(got), c.want)
		}
	}
}

// TestWith: a snapshot with other endpoints is newer, and the same in all else.
func TestWith(t *testing.T) {
	s := NewSnapshot("s", SourceCache, time.Unix(7, 0), []Endpoint{{Addr: "a:1", Weight: 1}})
	s.Revision, s.Unresolved = 5, true
	next := s.With([]Endpoint{{Addr: "c:1"}, {Addr: "b:1"}})
	if !slices.Equal(next.Endpoints, []Endpoint{{Addr: "b:1", Weight: 1}, {Addr: "c:1", Weight: 1}}) || len(s.Endpoints) != 1 || next.Version <= s.Version {
		t.Errorf("%+v with other endpoints is %+v", s, next)
	}
	if next.Service != "s" || next.Source != SourceCache || !next.Changed.Equal(s.Changed) || next.Revision != 5 || !next.Unresolved {
		t.Errorf("%+v has become %+v", s, next)
	}
}

// TestNewest: who receives gets the newest snapshot, once.
func TestNewest(t *testing.T) {
	n := make(Newest, 1)
	for range 3 {
		last := new(Snapshot)
		n.Put(new(Snapshot))
		n.Put(last)
		if got := <-n; got != last {
			t.Error("another snapshot than the newest")
		}
		if len(n) != 0 {
			t.Error("a snapshot is left")
		}
	}
}

// TestNormalizeShared: users of a list that is normal may normalize it at the same time. The race detector sees who writes.
func TestNormalizeShared(t *testing.T) {
	list := Normalize([]Endpoint{{Addr: "b:1"}, {Addr: "a:1", Weight: 2}})
	var users sync.WaitGroup
	for range 2 {
		users.Go(func() {
			if got := Normalize(list); len(got) != 2 || &got[0] != &list[0] {
				t.Errorf("%+v is another list", got)
			}
		})
	}
	users.Wait()
}

// TestCheckNames: neither name may be longer than MaxName.
func TestCheckNames(t *testing.T) {
	for _, zone := range []int{0, MaxName, MaxName + 1} {
		for _, node := range []int{0, MaxName, MaxName + 1} {
			err := CheckNames(strings.Repeat("z", zone), strings.Repeat("n", node))
			if (err == nil) != (zone <= MaxName && node <= MaxName) {
				t.Errorf("%d bytes of zone and %d of node: %v", zone, node, err)
			}
		}
	}
}

func TestStateNames(t *testing.T) {
	for state, want := range map[State]string{
		Pending: "pending", Registered: "registered", Withdrawn: "withdrawn", Closed: "closed", Failed: "failed", 99: "unknown",
	} {
		if got := state.String(); got != want {
			t.Errorf("state %d is %q, want %q", state, got, want)
		}
	}
}

func TestProtocols(t *testing.T) {
	some := Protocols{"link", "http"}
	if err := some.Check("smtp"); err == nil || err.Error() != "registry: protocol is none of link, http" {
		t.Errorf("got %v", err)
	}
	for _, err := range []error{some.Check(""), some.Check("http"), Protocols(nil).Check("smtp")} {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestParseAddr(t *testing.T) {
	longLabel, longHost := strings.Repeat("a", 63), strings.Repeat("a.", 126)+"a"
	for _, c := range []struct {
		addr, canonical, host string
		isIP                  bool
	}{
		{"10.0.0.1:80", "10.0.0.1:80", "10.0.0.1", true},
		{"10.0.0.1:0080", "10.0.0.1:80", "10.0.0.1", true},
		{"[FE80::0:1]:80", "[fe80::1]:80", "fe80::1", true},
		{"[fe80::1%Eth0.1-2_3]:80", "[fe80::1%Eth0.1-2_3]:80", "fe80::1%Eth0.1-2_3", true},
		{"[::ffff:10.0.0.1]:80", "10.0.0.1:80", "10.0.0.1", true},
		{"Replica-1.example.com:443", "replica-1.example.com:443", "replica-1.example.com", false},
		{"compose_name:1", "compose_name:1", "compose_name", false},
		{"localhost:65535", "localhost:65535", "localhost", false},
		{"[fe80::1%azAZ09]:1", "[fe80::1%azAZ09]:1", "fe80::1%azAZ09", true},
		{"az-AZ.09.1a.:1", "az-az.09.1a.:1", "az-az.09.1a.", false},
		{longLabel + ":1", longLabel + ":1", longLabel, false},
		{longHost + ":1", longHost + ":1", longHost, false},
	} {
		a, err := ParseAddr(c.addr)
		if err != nil || a.String() != c.canonical || a.Host != c.host || a.IsIP != c.isIP {
			t.Errorf("%s: %+v, %v", c.addr, a, err)
		}
	}
	for _, addr := range []string{
		"", ":", ":80", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:http",
		"0.0.0.0:80", "[::]:80", "224.0.0.1:80", "10.0.0.256:80", "10.1:80", "::1:80", "a b:80", "a..b:80", "-a:80", "a-:80",
		"[fe80::9%\x1bc]:80", "[fe80::9%a b]:80", "[fe80::9%\u009b]:80", "http://a:80", "${POD_IP}:80", longLabel + "a:80", longHost + "a:80",
		".:80", "a.1:80", "a@:80", "a`:80", "a[:80", "a{:80", "a/:80", "[fe80::9%@]:80", "[fe80::9%`]:80", "[fe80::9%{]:80", "[fe80::9%/]:80", "[fe80::9%:]:80",
	} {
		if a, err := ParseAddr(addr); err == nil {
			t.Errorf("%q accepted as %q", addr, a)
		}
	}
}

func FuzzParseAddr(f *testing.F) {
	for _, s := range []string{"10.0.0.1:80", "[::1%eth0]:9", "a.b:1", "[::ffff:1.2.3.4]:5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddr(s)
		if err != nil {
			return
		}
		if again, err := ParseAddr(a.String()); err != nil || again != a {
			t.Fatalf("%q: %q is not canonical: %q, %v", s, a, again, err)
		}
	})
}

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for it")
	log := slog.New(slog.DiscardHandler)
	c, err := OpenCache(dir, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	readable := t.TempDir() + "/readable"
	if err := os.Mkdir(readable, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, want := modeOf(t, dir), modeOf(t, readable); got != want {
		t.Errorf("the folder is %v, want %v", got, want)
	}
	names := []string{"compute", "a/b", "..", ".", "../../up", "with space", "ü"}
	for i, name := range names {
		for revision := range 5 { // the newest wins
			c.Store(Record{
				Service: name, Origin: "o", Cluster: 1<<64 - 1, Term: 3, Revision: int64(10*i + revision),
				Changed: time.Unix(int64(i), 5).UTC(), Endpoints: []Endpoint{{Addr: "10.0.0.1:80", Weight: i + 1, Zone: "z"}},
			})
		}
	}
	c.Close()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != len(names) {
		t.Fatalf("%d files, %v", len(files), err) // no temporary files are left
	}
	if c, err = OpenCache(dir, nil, log); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, name := range names {
		rec, ok := c.Load(name)
		if !ok || rec.Revision != int64(10*i+4) || rec.Cluster != 1<<64-1 || !rec.Changed.Equal(time.Unix(int64(i), 5)) ||
			!slices.Equal(rec.Endpoints, []Endpoint{{Addr: "10.0.0.1:80", Weight: i + 1, Zone: "z"}}) {
			t.Errorf("%s: %+v, %v", name, rec, ok)
		}
	}
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

// TestCacheFiles: a cache that is closed has no file open.
func TestCacheFiles(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(all)
	}
	const caches = 100
	before := open()
	for range caches {
		c, err := OpenCache(t.TempDir(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if n := open(); n >= before+caches/2 {
		t.Errorf("%d files are open, before %d", n, before)
	}
}

func TestCacheIgnoresDamage(t *testing.T) {
	dir := t.TempDir()
	c, err := OpenCache(dir, Protocols{"link", "dubbo"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, ok := c.Load("s"); ok {
		t.Error("Load returns a record that was never stored")
	}
	good := `{"service":"s","endpoints":[{"Addr":"10.0.0.1:80"}]}`
	for content, want := range map[string]bool{
		good: true, "": false, good[:20]: false, good + "x": false, strings.Repeat(" ", maxRecord) + good: false,
		strings.Replace(good, `"s"`, `"t"`, 1): false, strings.Replace(good, ":80", "", 1): false,
		strings.Replace(good, "10.0.0.1", "10.0.0.01", 1): false, strings.Repeat(" ", maxRecord-len(good)) + good: true,
		strings.Replace(good, "{", `{"changed":"9999-12-31T23:59:59-01:00",`, 1): false, strings.Replace(good, "{", `{"changed":"9999-12-31T23:59:59Z",`, 1): true,
		strings.Replace(good, "{", `{"changed":"0000-01-01T00:00:00+01:00",`, 1): false, strings.Replace(good, "{", `{"changed":"0000-01-01T00:00:00Z",`, 1): true,
		strings.Replace(good, `80"`, `80","Protocol":"smtp"`, 1): false, strings.Replace(good, `80"`, `80","Protocol":"dubbo"`, 1): true,
	} {
		must.WriteFile(t, filepath.Join(dir, "s.json"), content)
		if rec, ok := c.Load("s"); ok != want || ok && rec.Endpoints[0].Weight != 1 {
			t.Errorf("%.60q: %+v, %v", content, rec, ok)
		}
	}
}

// A record that can't be written, because a directory has its name, is written once
// that is gone. Of two records, the newer one is written.
func TestCacheRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c, err := OpenCache(dir, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		obstacle := filepath.Join(dir, "s.json")
		if err := os.MkdirAll(filepath.Join(obstacle, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		for revision := range int64(3) {
			c.Store(Record{Service: "s", Revision: revision})
			time.Sleep(2 * rewriteAfter)
		}
		if err := os.RemoveAll(obstacle); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * rewriteAfter)
		if rec, ok := c.Load("s"); !ok || rec.Revision != 2 {
			t.Errorf("%+v, %v; want revision 2", rec, ok)
		}
	})
}

// TestCacheLargeRecords: a record that could not be read again does not replace the last one. The largest that can be read is
// stored.
func TestCacheLargeRecords(t *testing.T) {
	endpoints := func(n, zone int) (all []Endpoint) {
		for i := range n {
			all = append(all, Endpoint{Addr: fmt.Sprintf("10.0.%d.%d:80", i/200, 1+i%200), Weight: 1, Zone: strings.Repeat("z", zone)})
		}
		return all
	}
	for name, large := range map[string][]Endpoint{
		"endpoints": endpoints(MaxListed+1, 0), "bytes": endpoints(100, maxRecord/100),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var log bytes.Buffer
			for _, stored := range [][]Endpoint{endpoints(MaxListed, 0), large} {
				c, err := OpenCache(dir, nil, slog.New(slog.NewTextHandler(&log, nil)))
				if err != nil {
					t.Fatal(err)
				}
				c.Store(Record{Service: "s", Endpoints: stored})
				c.Close()
				if rec, ok := c.Load("s"); !ok || len(rec.Endpoints) != MaxListed {
					t.Errorf("loaded %d endpoints, %t", len(rec.Endpoints), ok)
				}
			}
			if n := strings.Count(log.String(), "write failed"); n != 1 {
				t.Errorf("%d lines in the log", n)
			}
		})
	}
}

// TestCacheFailures: a cause is logged once, for all services that can't be written, until all are written again.
func TestCacheFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var log bytes.Buffer
		c, err := OpenCache(dir, nil, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		services := []string{"a", "b", "c"}
		for i, step := range []struct {
			isBlocked bool // directories have the names of the files
			lines     int
		}{
			{false, 0}, {true, 1}, {true, 1}, {false, 1}, {true, 2},
		} {
			for _, s := range services {
				path := filepath.Join(dir, s+".json")
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				if step.isBlocked {
					if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, s := range services {
				c.Store(Record{Service: s})
			}
			time.Sleep(10 * rewriteAfter)
			synctest.Wait()
			if n := strings.Count(log.String(), "write failed"); n != step.lines {
				t.Errorf("step %d: %d lines in the log, want %d", i, n, step.lines)
			}
		}
	})
}

// FuzzCache decodes any bytes as a cache file of any service. The decoded endpoints
// must be valid, and encode to the same record. Different services must have different
// files in the cache directory.
func FuzzCache(f *testing.F) {
	f.Add("s", "t", []byte(`{"service":"s","endpoints":[{"Addr":"10.0.0.1:80","Weight":500000,"Zone":"z"},{"Addr":"10.0.0.1:80","Protocol":"link"}]}`))
	f.Add("../up", "..", []byte(`{"service":"../up","origin":"o","cluster":18446744073709551615,"changed":"2026-11-21T09:00:00+14:00"}`))
	f.Add(".", "./", []byte(`{"service":"."}`))
	known := Protocols{"link", "http", "dubbo", "tcp"}
	f.Fuzz(func(t *testing.T, service, other string, data []byte) {
		c := Cache{dir: "/cache"}
		path := c.path(service)
		if filepath.Dir(path) != c.dir || (path == c.path(other)) != (service == other) {
			t.Fatalf("the file of %q is %s, of %q %s", service, path, other, c.path(other))
		}
		rec, err := decodeRecord(service, data, known)
		if err != nil {
			return
		}
		for i, e := range rec.Endpoints {
			a, err := ParseAddr(e.Addr)
			if err != nil || a.String() != e.Addr || known.Check(e.Protocol) != nil || e.Weight < 1 || e.Weight > MaxWeight || i > 0 && e.Addr <= rec.Endpoints[i-1].Addr {
				t.Fatalf("%q: endpoints %+v", data, rec.Endpoints)
			}
		}
		stored, err := json.Marshal(rec)
		if err != nil {
			t.Fatalf("%+v: %v", rec, err)
		}
		again, err := decodeRecord(service, stored, known)
		if err != nil || !slices.Equal(again.Endpoints, rec.Endpoints) || !again.Changed.Equal(rec.Changed) || again.Revision != rec.Revision {
			t.Fatalf("wrote %+v, read %+v, %v", rec, again, err)
		}
	})
}

func TestNilCache(t *testing.T) {
	var c *Cache
	c.Store(Record{Service: "s"})
	if _, ok := c.Load("s"); ok {
		t.Error("Load returns a record that was never stored")
	}
	c.Close()
}
