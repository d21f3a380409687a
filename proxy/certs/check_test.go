package certs

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestCheckTime: Check compares certificates with the given time. The tests of the
// command "remora check" cover the faults of each file.
func TestCheckTime(t *testing.T) {
	ca := testcerts.New(t)
	dir := testcerts.NewDir(t, ca, nil, nil)
	dir.Rotate(ca.Issue(testcerts.Leaf{}))
	o := Options{Cert: dir.Cert, Key: dir.Key, CA: dir.CA}
	for _, c := range []struct {
		after time.Duration
		want  string // fault of both certificates; empty means none
	}{
		{-24 * time.Hour, "not valid before"}, {0, ""}, {24 * time.Hour, "expired at"},
	} {
		faults := Check(o, time.Now().Add(c.after))
		var keys []string
		for _, f := range faults {
			keys = append(keys, f.Key)
			if !strings.Contains(f.Err.Error(), c.want) {
				t.Errorf("%s later: %s: %v, want %q", c.after, f.Key, f.Err, c.want)
			}
		}
		if got, want := strings.Join(keys, " "), "cert ca"; c.want != "" && got != want || c.want == "" && got != "" {
			t.Errorf("%s later: faults in %q", c.after, got)
		}
	}
	if faults := Check(Options{}, time.Now()); faults != nil {
		t.Errorf("no files: %v", faults)
	}
}

// TestCheckFaults: each fault is reported once, for the setting of its file.
func TestCheckFaults(t *testing.T) {
	ca := testcerts.New(t)
	d := testcerts.NewDir(t, ca, nil, nil)
	cert, key := ca.Issue(testcerts.Leaf{})
	d.Rotate(cert, key)
	expired, _ := testcerts.SelfSigned(t, testcerts.Leaf{Expired: true})
	in := func(name string, content ...[]byte) string {
		path := filepath.Join(t.TempDir(), name)
		must.WriteFile(t, path, bytes.Join(content, nil))
		return path
	}
	list, none := in("list", ca.List(nil)), filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"all", Options{Cert: d.Cert, Key: d.Key, CA: d.CA, CRL: list}, ""},
		{"no key", Options{Cert: d.Cert}, ""},
		{"key ahead of the certificate", Options{Cert: in("both", key, cert), Key: d.Key}, ""},
		{"expired authority ahead of another", Options{CA: in("bundle", expired, ca.PEM)}, ""},
		{"only an expired authority", Options{CA: in("bundle", expired)}, "ca"},
		{"no such certificate", Options{Cert: none, Key: d.Key}, "cert"},
		{"no such key", Options{Cert: d.Cert, Key: none}, "key"},
		{"no such authorities", Options{CA: none, CRL: list}, "ca"},
		{"no such list", Options{CA: d.CA, CRL: none}, "crl"},
		{"neither certificate nor key", Options{Cert: none, Key: none}, "cert key"},
	} {
		var keys []string
		for _, f := range Check(c.o, time.Now()) {
			keys = append(keys, f.Key)
		}
		if got := strings.Join(keys, " "); got != c.want {
			t.Errorf("%s: faults of %q, want %q", c.name, got, c.want)
		}
	}
}
