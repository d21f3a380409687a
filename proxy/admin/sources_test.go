package admin

import (
	"slices"
	"testing"
	"time"
)

// TestSources: what people read of a source of endpoints, and of all registries together.
func TestSources(t *testing.T) {
	at := time.Unix(1700000000, 0)
	for _, c := range []struct {
		s           SourceStats
		line, check string
	}{
		{SourceStats{Name: "etcd", Up: true}, "etcd up", "[+]etcd ok"},
		{SourceStats{Name: "etcd"}, "etcd has not responded yet", "[-]etcd has not responded yet"},
		{SourceStats{Name: "etcd", Code: "timeout", Error: "too slow", Since: at, Kept: 3}, "etcd down (timeout): too slow; 3 endpoints kept",
			"[-]etcd failed: timeout since 2023-11-14T22:13:20Z, 3 endpoints stay in use"},
		{SourceStats{Name: "etcd", Up: true, Kept: 1, Doubted: 1, Unusable: 1}, "etcd up; 1 endpoints kept; 1 records can't be used",
			"[+]etcd ok: 1 endpoints of 1 services stay in use for a while, which it does not have"},
	} {
		if got := c.s.String(); got != c.line {
			t.Errorf("%+v: %q, want %q", c.s, got, c.line)
		}
		if got := checks([]SourceStats{c.s}); !slices.Equal(got, []string{c.check}) {
			t.Errorf("%+v: %q, want %q", c.s, got, c.check)
		}
	}
	up, down := SourceStats{Name: "file", Up: true}, SourceStats{Name: "etcd", Code: "timeout", Error: "too slow"}
	dns := SourceStats{Name: SourceDNS, Code: "unresolved", Error: "none"}
	for _, c := range []struct {
		sources []SourceStats
		want    *RegistryStats
	}{
		{nil, nil},
		{[]SourceStats{dns}, nil},
		{[]SourceStats{up, dns}, &RegistryStats{Connected: true}},
		{[]SourceStats{dns, up}, &RegistryStats{Connected: true}},
		{[]SourceStats{down, up}, &RegistryStats{LastError: "etcd: too slow"}},
		{[]SourceStats{up, down}, &RegistryStats{LastError: "etcd: too slow"}},
		{[]SourceStats{{Name: "zookeeper"}}, &RegistryStats{}},
		{[]SourceStats{down, {Name: "zookeeper", Error: "lost"}}, &RegistryStats{LastError: "etcd: too slow; zookeeper: lost"}},
	} {
		if got := registryOf(c.sources); (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%+v: %+v, want %+v", c.sources, got, c.want)
		}
	}
}
