package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/remora-proxy/remora/registry"
)

// Nodes of a ZooKeeper without a chroot.
var (
	providersKey = key{"/dubbo/" + hello + "/providers", true}
	overridesKey = key{"/dubbo/" + hello + "/configurators", true}
	mappingKey   = key{"/dubbo/mapping/" + hello, false}
	appKey       = key{"/services/app", true}
)

func instanceAt(id string) key       { return key{"/services/app/" + id, false} }
func metadataAt(revision string) key { return key{"/dubbo/metadata/app/" + revision, false} }

// metadata returns that of a revision with one service.
func metadata(service string) value { return value{data: `{"services":{"x":` + service + `}}`} }

// find returns what a service finds among nodes, and how many keys it reads. A key that is not there is a missing node.
func find(t *testing.T, of Service, nodes map[key]value) (found findings, reads int) {
	t.Helper()
	of.Interface, of.Scheme = hello, "dubbo"
	synctest.Test(t, func(t *testing.T) {
		m := newMirror(t)
		m.read = func(_ context.Context, k key) (value, error) { return nodes[k], nil }
		m.connect(true)
		f := &follower{r: &Registry{root: "/dubbo"}, of: of, used: make(map[*entry]struct{}), missing: make(map[*entry]struct{})}
		isComplete := false
		for range 10 { // nodes lead to others
			if found, isComplete, _ = f.findIn(m); isComplete {
				break
			}
			synctest.Wait()
		}
		if !isComplete {
			t.Error("not complete")
		}
		reads = len(m.entries)
	})
	return found, reads
}

// TestFindInstances: what instances of an application and the metadata of their revisions say. All but the last instance of a list are
// odd, and take nothing from it.
func TestFindInstances(t *testing.T) {
	one := value{data: instanceData("10.0.0.1", "r", 1)}
	last := value{data: instanceData("10.0.0.9", "", 1)}
	denied := errors.New("denied")
	for name, c := range map[string]struct {
		one, metadata value
		want          string // usable, beside the last
		malformed     string // the example; "" means none
		err           error
	}{
		"an instance":                {value{data: instanceData("10.0.0.1", "", 1)}, value{}, "10.0.0.1:1*100", "", nil},
		"one that has just gone":     {value{}, value{}, "", "", nil},
		"a large one":                {value{isLarge: true}, value{}, "", "app/one", nil},
		"one that is malformed":      {value{data: "?"}, value{}, "", "app/one", nil},
		"one that can't be read":     {value{err: denied}, value{}, "", "", denied},
		"no metadata":                {one, value{}, "10.0.0.1:1*100", "", nil},
		"metadata that is malformed": {one, value{data: "?"}, "10.0.0.1:1*100", "", nil},
		"metadata that is denied":    {one, value{err: denied}, "", "", denied},
		"another interface":          {one, metadata(`{"name":"demo.Other","protocol":"dubbo"}`), "", "", nil},
		"another group":              {one, metadata(`{"name":"demo.Hello","group":"g","protocol":"dubbo"}`), "", "", nil},
		"another version":            {one, metadata(`{"name":"demo.Hello","version":"2","protocol":"dubbo"}`), "", "", nil},
		"the port of the protocol":   {one, metadata(`{"name":"demo.Hello","protocol":"dubbo"}`), "10.0.0.1:1*100", "", nil},
		"a port of its own":          {one, metadata(`{"name":"demo.Hello","protocol":"dubbo","port":2}`), "10.0.0.1:2*100", "", nil},
		"a weight":                   {one, metadata(`{"name":"demo.Hello","protocol":"dubbo","params":{"weight":"7"}}`), "10.0.0.1:1*7", "", nil},
		"a weight of one that is disabled": {value{data: strings.Replace(one.data, `"port":1,`, `"port":1,"enabled":false,`, 1)},
			metadata(`{"name":"demo.Hello","protocol":"dubbo","params":{"weight":"7"}}`), "10.0.0.1:1*0", "", nil},
		"a weight of one with a weight": {value{data: strings.Replace(one.data, `"metadata":{`, `"metadata":{"weight":"1",`, 1)},
			metadata(`{"name":"demo.Hello","protocol":"dubbo","params":{"weight":"7"}}`), "10.0.0.1:1*7", "", nil},
		"another protocol":                  {one, metadata(`{"name":"demo.Hello","protocol":"rest","port":2}`), "", "", nil},
		"a port that is none":               {one, metadata(`{"name":"demo.Hello","protocol":"dubbo","port":70000}`), "", "10.0.0.1, port 70000", nil},
		"a protocol that has no port there": {one, metadata(`{"name":"demo.Hello","protocol":"rest"}`), "", "10.0.0.1, port 0", nil},
		"a revision that is a path":         {value{data: instanceData("10.0.0.1", "r/r", 1)}, value{}, "10.0.0.1:1*100", "", nil},
		"the revision of no service":        {value{data: instanceData("10.0.0.1", "0", 1)}, value{}, "10.0.0.1:1*100", "", nil},
	} {
		wrong := metadata(`{"name":"demo.Other"}`)
		found, _ := find(t, Service{Applications: []string{"app"}}, map[key]value{
			appKey: {children: []string{"zlast", "one"}}, instanceAt("one"): c.one, instanceAt("zlast"): last,
			metadataAt("r"): c.metadata, metadataAt("r/r"): wrong, metadataAt("0"): wrong, metadataAt(""): wrong,
		})
		var got []string
		for _, e := range found.usable {
			got = append(got, fmt.Sprintf("%s*%d", e.Addr, e.Weight))
		}
		if want := strings.TrimSpace(c.want + " 10.0.0.9:1*100"); strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
		if found.malformed.example != c.malformed || !errors.Is(found.err, c.err) {
			t.Errorf("%s: malformed is %q, error %v", name, found.malformed.example, found.err)
		}
		if n := found.others["rest"]; n > 1 || (n == 1) != (name == "another protocol") {
			t.Errorf("%s: other protocols are %v", name, found.others)
		}
	}
}

// TestFindProviders: records that the service can't use take nothing from those after them, and the errors of nodes are the first ones.
func TestFindProviders(t *testing.T) {
	names := func(urls ...string) (v value) {
		for _, u := range urls {
			v.children = append(v.children, url.QueryEscape(u))
		}
		return v
	}
	first, second := errors.New("first"), errors.New("second")
	for name, c := range map[string]struct {
		providers, overrides  value
		want                  string
		malformed, overridden int // entries
		err                   error
	}{
		"malformed before":    {names("a", "dubbo://10.0.0.1:1/a"), value{}, "10.0.0.1:1", 1, 0, nil},
		"overrides of others": {names("dubbo://10.0.0.1:1/a"), names("override://0.0.0.0/a?disabled=true&application=b", "override://0.0.0.0/a?disabled=true&group=g"), "10.0.0.1:1", 0, 0, nil},
		"malformed overrides": {names("dubbo://10.0.0.1:1/a"), names("a", "override://10.0.0.999:1/a"), "10.0.0.1:1", 0, 2, nil},
		"overrides of no port": {names("dubbo://10.0.0.1:1/a"),
			names("override://0.0.0.0:x/a?disabled=true", "override://0.0.0.0:-1/a?disabled=true", "override://0.0.0.0:65536/a?disabled=true"), "10.0.0.1:1", 0, 3, nil},
		"the narrower counts":        {names("dubbo://10.0.0.1:1/a"), names("absent://10.0.0.1:1/a?disabled=false", "override://0.0.0.0:1/a?disabled=true"), "10.0.0.1:1", 0, 0, nil},
		"the port counts":            {names("dubbo://10.0.0.1:1/a"), names("override://0.0.0.0/a?disabled=true", "absent://0.0.0.0:1/a?disabled=false"), "10.0.0.1:1", 0, 0, nil},
		"the first error":            {value{err: first}, value{err: second}, "", 0, 0, first},
		"the error of the overrides": {names("dubbo://10.0.0.1:1/a"), value{err: second}, "10.0.0.1:1", 0, 0, second},
	} {
		found, _ := find(t, Service{}, map[key]value{providersKey: c.providers, overridesKey: c.overrides})
		var got []string
		for _, e := range found.usable {
			got = append(got, e.Addr)
		}
		if strings.Join(got, " ") != c.want || found.malformed.count != c.malformed || found.overrides.count != c.overridden || found.err != c.err {
			t.Errorf("%s: %q, %d and %d are malformed, %v", name, got, found.malformed.count, found.overrides.count, found.err)
		}
	}
}

// TestFindBounds: how many nodes are read for one service.
func TestFindBounds(t *testing.T) {
	instances := func(n int) map[key]value {
		nodes, ids := map[key]value{}, []string(nil)
		for i := range n {
			ids = append(ids, fmt.Sprintf("%05d", i))
		}
		nodes[appKey] = value{children: ids}
		return nodes
	}
	app := Service{Applications: []string{"app"}}
	for n, want := range map[int]int{maxInstances - 1: maxInstances - 1, maxInstances: maxInstances, maxInstances + 1: maxInstances} {
		found, reads := find(t, app, instances(n))
		if reads -= 3; reads != want || found.isCut != (n > want) { // providers, configurators, the application
			t.Errorf("%d of %d instances are read, cut %t", reads, n, found.isCut)
		}
	}

	nodes := instances(maxRevisions + 2)
	for i := range maxRevisions + 2 {
		nodes[instanceAt(fmt.Sprintf("%05d", i))] = value{data: instanceData(fmt.Sprintf("10.0.%d.%d", i/250, i%250), fmt.Sprint("r", i%(maxRevisions+1)), 1)}
	}
	nodes[metadataAt("r0")] = metadata(`{"name":"demo.Other"}`)
	found, reads := find(t, app, nodes)
	if reads -= 3 + maxRevisions + 2; reads != maxRevisions || len(found.usable) != maxRevisions { // the first and the last have r0
		t.Errorf("%d revisions are read, %d instances are usable", reads, len(found.usable))
	}

	var names []string
	for i := range maxApplications + 1 {
		names = append(names, fmt.Sprint("app", i))
	}
	for mapping, want := range map[string]int{
		"": 0, " app ,app, other": 2, ",.,..,a/b,a\nb, ": 0, "a b": 1, strings.Join(names, ","): maxApplications, strings.Join(names[1:], ","): maxApplications,
	} {
		if _, reads := find(t, Service{}, map[key]value{mappingKey: {data: mapping}}); reads != want+3 {
			t.Errorf("%.30q: %d applications are read, want %d", mapping, reads-3, want)
		}
	}
	if found, _ := find(t, Service{}, map[key]value{mappingKey: {isLarge: true}}); !errors.Is(found.err, errData) {
		t.Errorf("a large mapping: %v", found.err)
	}

	var d findings
	for range 2 {
		for i := range 2 * maxSchemes {
			d.addOther(fmt.Sprint("scheme", i))
		}
	}
	if len(d.others) != maxSchemes || d.others["scheme0"] != 2 {
		t.Errorf("%d schemes are counted, the first %d times", len(d.others), d.others["scheme0"])
	}
}

// TestTell: what the log says of records that can't be used, once for as long as they are the same.
func TestTell(t *testing.T) {
	var log said
	f := &follower{r: &Registry{log: slog.New(slog.NewTextHandler(&log, nil))}, of: Service{Interface: hello, Scheme: "dubbo"}}
	bad := malformed{count: 2, example: "x", reason: errURL}
	usable := []registry.Endpoint{{Addr: "10.0.0.1:1"}}
	for i, step := range []struct {
		found findings
		want  []string // texts of the next line; none means that there is no line
	}{
		{findings{}, nil},
		{findings{malformed: bad}, []string{"malformed=2 example=x reason=\"" + errURL.Error()}},
		{findings{malformed: bad}, nil},
		{findings{malformed: bad, usable: usable}, nil},
		{findings{overrides: bad}, []string{"malformed_overrides=2 override=x override_reason=\"" + errURL.Error()}},
		{findings{}, nil},
		{findings{overrides: bad}, []string{"malformed_overrides=2"}},
		{findings{others: map[string]int{"tri": 1}, usable: usable}, nil},
		{findings{others: map[string]int{"tri": 1}}, []string{"other_protocols=map[tri:1] expected=dubbo", "usable=0"}},
		{findings{others: map[string]int{"tri": 2}}, nil},
		{findings{others: map[string]int{"tri": 2}, malformed: bad, usable: usable}, []string{"malformed=2", "other_protocols=map[tri:2]", "usable=1"}},
		{findings{isCut: true, usable: usable}, []string{"instances_at_most=10000"}},
		{findings{malformed: bad, overrides: bad}, []string{"malformed=2", "malformed_overrides=2"}},
	} {
		log.Reset()
		f.tell(&step.found)
		got := log.String()
		for _, word := range []string{"malformed=", "malformed_overrides=", "other_protocols=", "instances_at_most="} {
			if want := strings.Contains(strings.Join(step.want, " "), word); strings.Contains(got, " "+word) != want {
				t.Errorf("step %d: %s is told: %t", i, word, !want)
			}
		}
		for _, text := range step.want {
			if !strings.Contains(got, text) {
				t.Errorf("step %d: %s lacks %s", i, got, text)
			}
		}
		if n := strings.Count(got, "\n"); n != min(len(step.want), 1) {
			t.Errorf("step %d: %d lines: %s", i, n, got)
		}
	}
}

// TestTellUnreadable: why records can't be read is logged once for as long as the reason stays.
func TestTellUnreadable(t *testing.T) {
	var log said
	f := &follower{r: &Registry{log: slog.New(slog.NewTextHandler(&log, nil))}}
	one, two := errors.New("one"), errors.New("two")
	lines := 0
	for i, c := range []struct {
		err    error
		isNews bool
	}{{nil, false}, {one, true}, {one, false}, {two, true}, {nil, false}, {two, true}} {
		if c.isNews {
			lines++
		}
		if isNews := f.tellUnreadable(c.err); isNews != c.isNews || log.count("can't be read whole") != lines {
			t.Errorf("step %d: news %t, the log has %s", i, isNews, log.String())
		}
	}
}

// TestOutageLog: the log has the failures of an outage, each code once, unless one alone is followed by a response.
func TestOutageLog(t *testing.T) {
	const fail, other, again, end = "fail", "other code", "same code", "end"
	for _, c := range []struct {
		events      string
		told, ended int
	}{
		{"", 0, 0}, {end, 0, 0}, {fail, 0, 0}, {fail + "," + end, 0, 0}, {fail + "," + again, 1, 0}, {fail + "," + other, 2, 0},
		{fail + "," + again + "," + again, 1, 0}, {fail + "," + again + "," + other, 2, 0}, {fail + "," + other + "," + again, 2, 0},
		{fail + "," + again + "," + end, 1, 1}, {fail + "," + again + "," + end + "," + end, 1, 1},
		{fail + "," + again + "," + end + "," + fail, 1, 1}, {fail + "," + end + "," + fail + "," + again + "," + end, 1, 1},
	} {
		var log said
		o := outage{log: slog.New(slog.NewTextHandler(&log, nil))}
		for event := range strings.SplitSeq(c.events, ",") {
			switch event {
			case fail, other:
				o.add(errURL, true)
			case again:
				o.add(errURL, false)
			case end:
				o.end()
			}
		}
		if told, ended := log.count("does not respond"), log.count("responds again"); told != c.told || ended != c.ended {
			t.Errorf("%s: %d and %d lines, want %d and %d", c.events, told, ended, c.told, c.ended)
		}
	}
}

// TestShortened: a log has at most the first 200 bytes of a text, and no part of a character.
func TestShortened(t *testing.T) {
	for text, want := range map[string]string{
		"": "", strings.Repeat("x", 200): strings.Repeat("x", 200), strings.Repeat("x", 201): strings.Repeat("x", 200) + "…",
		strings.Repeat("x", 199) + "üb": strings.Repeat("x", 199) + "…", "a\xffb": "ab",
	} {
		if got := shortened(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestMemo: a text is parsed once for as long as each pass asks for it.
func TestMemo(t *testing.T) {
	parsed := 0
	parse := func(text string) int { parsed++; return len(text) }
	var m memo[int]
	for i, asks := range []int{2, 1, 0, 1} {
		m.begin()
		for range asks {
			if got := m.get("abc", parse); got != 3 {
				t.Errorf("pass %d: %d", i, got)
			}
		}
		if want := []int{1, 1, 1, 2}[i]; parsed != want {
			t.Errorf("pass %d: parsed %d times, want %d", i, parsed, want)
		}
	}
}
