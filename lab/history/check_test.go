package history

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The times of these tests are seconds. Revision 100*n is the tick of second n, in each history for a hundred seconds. So a change at
// revision 1050 was made between the seconds 10 and 11.

// bounds of these tests.
var bounds = Bounds{Seen: 10 * time.Second, Grace: 5 * time.Second, Return: 10 * time.Second}

func at(second float64) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(second * float64(time.Second)))
}

func put(revision, previous int64, address string) *Change {
	return &Change{Revision: revision, Previous: previous, Key: "/s/n@" + address, Service: "s", Address: address, Heard: at(1000)}
}

func del(revision, previous int64, address string) *Change {
	c := put(revision, previous, address)
	c.Deleted = true
	return c
}

// viewed is a view that the sidecar had at two seconds, and in between.
func viewed(first, last float64, revision int64, addresses ...string) *View {
	return &View{Sidecar: "a", Service: "s", Revision: revision, Endpoints: addresses, First: at(first), Asked: at(last), Told: at(last + 0.01)}
}

func cached(first, last float64, run int, addresses ...string) *View {
	v := viewed(first, last, 0, addresses...)
	v.Cached, v.Run = true, run
	return v
}

func sent(second float64, address string) *Request {
	return &Request{Sidecar: "a", Service: "s", Endpoint: address, Began: at(second), Ended: at(second + 0.01)}
}

func outage(sidecar string, from, until float64) *Outage {
	return &Outage{Sidecar: sidecar, From: at(from), Until: at(until)}
}

func owner(address string, from, until float64) *Owner {
	return &Owner{Sidecar: "p", Key: "/s/n@" + address, From: at(from), Until: at(until)}
}

// listed says that the recorder has found a change in a list.
func listed(c *Change, since int64) *Change {
	c.Listed, c.Since = true, since
	return c
}

// inRun says in which run of its sidecar a view was.
func inRun(run int, v *View) *View {
	v.Run = run
	return v
}

// of makes a history of its parts and the ticks, by way of its lines.
func of(t *testing.T, parts ...any) *History {
	t.Helper()
	var text bytes.Buffer
	for second := range 101 {
		text.Write(Marshal(&Tick{Revision: int64(100 * second), Sent: at(float64(second)), Acked: at(float64(second) + 0.01)}))
	}
	for _, p := range parts {
		text.Write(Marshal(p))
	}
	var h History
	if err := h.Read(&text); err != nil {
		t.Fatal(err)
	}
	return &h
}

// TestCheck: each kind of illegal history is noticed, by the rule that is named. Histories at the border are legal.
func TestCheck(t *testing.T) {
	// x and y are registered in the first seconds, and known to the sidecar.
	x, y := put(110, 0, "x"), put(120, 0, "y")
	for _, test := range []struct {
		name  string
		parts []any
		want  string // the rule that is broken; "" means none
	}{
		{"nothing", nil, ""},
		{"a view of all", []any{x, y, viewed(2, 99, 120, "x", "y")}, ""},

		{"a request just within the bound", []any{x, y, del(1050, 110, "x"), sent(20.9, "x")}, ""},
		{"a request after the bound", []any{x, y, del(1050, 110, "x"), sent(21.2, "x")}, "gone"},
		{"a request to what was never registered", []any{x, y, sent(30, "z")}, "gone"},
		{"a request just after the key has come back", []any{x, y, del(1050, 110, "x"), put(2950, 0, "x"), sent(29.1, "x")}, ""},
		{"a request just before the key may have come back", []any{x, y, del(1050, 110, "x"), put(2950, 0, "x"), sent(28.9, "x")}, "gone"},
		{"a request while the key has come back", []any{x, y, del(1050, 110, "x"), put(2850, 0, "x"), del(2950, 2850, "x"), sent(35, "x")}, ""},
		{"a request to the last endpoint within the grace", []any{x, del(1050, 110, "x"), sent(25.9, "x")}, ""},
		{"a request to the last endpoint after the grace", []any{x, del(1050, 110, "x"), sent(26.2, "x")}, "gone"},
		{"a grace that another endpoint has not ended", []any{x, del(1050, 110, "x"), put(1250, 0, "y"), sent(25.9, "x")}, ""},
		{"a request in an outage", []any{x, y, outage("a", 10, 60), del(1050, 110, "x"), sent(59, "x")}, ""},
		{"a request just after an outage", []any{x, y, outage("a", 10, 60), del(1050, 110, "x"), sent(69.9, "x")}, ""},
		{"a request long after an outage", []any{x, y, outage("a", 10, 60), del(1050, 110, "x"), sent(70.1, "x")}, "gone"},
		{"a request in an outage that began late", []any{x, y, del(1050, 110, "x"), outage("a", 21.2, 60), sent(59, "x")}, "gone"},
		{"outages that leave no time", []any{x, y, del(1050, 110, "x"), outage("a", 15, 16), outage("", 22, 23), outage("a", 30, 31), sent(35, "x")}, ""},
		{"the outage of another sidecar", []any{x, y, outage("b", 10, 60), del(1050, 110, "x"), sent(59, "x")}, "gone"},
		{"an outage for all", []any{x, y, outage("", 10, 60), del(1050, 110, "x"), sent(59, "x")}, ""},
		{"a view with what is gone", []any{x, y, del(1050, 110, "x"), viewed(2, 30, 120, "x", "y")}, "gone"},
		{"two keys with one address", []any{
			x, y, &Change{Revision: 130, Key: "/s/m@x", Service: "s", Address: "x", Heard: at(1000)}, del(1050, 110, "x"), sent(60, "x"),
		}, ""},

		{"a view without a new endpoint, within the bound", []any{x, y, put(1050, 0, "z"), viewed(2, 20.9, 120, "x", "y")}, ""},
		{"a view without a new endpoint", []any{x, y, put(1050, 0, "z"), viewed(2, 22, 120, "x", "y")}, "missing"},
		{"a view without a new endpoint, in an outage", []any{x, y, outage("a", 10, 40), put(1050, 0, "z"), viewed(2, 45, 120, "x", "y")}, ""},
		{"a view without an endpoint that is just gone", []any{x, y, del(5050, 120, "y"), viewed(49.995, 49.995, 5050, "x")}, ""},
		{"a view without an endpoint that was put again", []any{x, y, put(1050, 120, "y"), viewed(14, 14, 110, "x")}, "missing"},

		{"an empty view of a revision with endpoints", []any{x, viewed(2, 2, 110)}, "empty"},
		{"an empty view of a revision without", []any{x, del(1050, 110, "x"), put(1060, 0, "x"), viewed(12, 12, 1055)}, ""},
		{"an empty view for too long", []any{x, del(1050, 110, "x"), put(1150, 0, "x"), viewed(12, 23, 1055)}, "empty"},
		{"an empty view in an outage", []any{x, del(1050, 110, "x"), outage("a", 11, 50), put(1150, 0, "x"), viewed(12, 55, 1055)}, ""},
		{"an empty view while endpoints follow each other", []any{x, put(1050, 0, "y"), del(1550, 110, "x"), viewed(18, 20, 0)}, "empty"},
		{"an empty view of a service that nobody has registered", []any{viewed(1, 90, 100)}, ""},
		{"a request without an endpoint", []any{x, sent(50, "")}, "empty"},
		{"a request without an endpoint at the start", []any{x, sent(5, "")}, ""},
		{"a request without an endpoint while there is none", []any{x, del(1050, 110, "x"), sent(50, "")}, ""},

		{"a view of an earlier revision", []any{x, y, viewed(2, 3, 120, "x", "y"), viewed(4, 5, 110, "x")}, "back"},
		{"a view of the same revision", []any{x, y, viewed(2, 3, 120, "x", "y"), viewed(4, 5, 120, "x", "y")}, ""},
		{"an earlier revision of another service", []any{
			x, &Change{Revision: 130, Key: "/r/n@z", Service: "r", Address: "z", Heard: at(1000)},
			&View{Sidecar: "a", Service: "r", Revision: 130, Endpoints: []string{"z"}, First: at(2), Asked: at(3), Told: at(3)}, viewed(4, 5, 110, "x"),
		}, ""},
		{"an earlier revision after a restart", []any{x, y, viewed(2, 3, 120, "x", "y"), inRun(1, viewed(4, 5, 110, "x"))}, "back"},
		{"the cache after a restart", []any{x, y, viewed(2, 3, 120, "x", "y"), cached(4, 5, 1, "x", "y"), inRun(1, viewed(6, 7, 120, "x", "y"))}, ""},
		{"the cache after the registry", []any{x, y, viewed(2, 3, 120, "x", "y"), cached(4, 5, 0, "x", "y")}, "back"},

		{"a view with what was deleted", []any{x, y, del(1050, 120, "y"), put(1060, 0, "z"), viewed(12, 12, 1060, "x", "y", "z")}, "content"},
		{"a view without what was put", []any{x, y, put(1060, 0, "z"), viewed(12, 12, 1060, "x", "z")}, "content"},
		{"a view of a revision between changes", []any{x, y, del(1050, 120, "y"), viewed(12, 12, 1049, "x", "y")}, ""},
		{"a view of before the record", []any{listed(put(10, 0, "x"), 0), viewed(5, 5, 9)}, ""},
		{"a view of revisions that were compacted", []any{
			x, y, listed(put(1550, 0, "z"), 1020), listed(del(1600, 0, "y"), 1020), viewed(16, 16, 1300, "x", "z"), viewed(16, 16, 1400, "x", "y"),
		}, ""},
		{"a view of after a compaction", []any{x, y, listed(put(1550, 0, "z"), 1020), listed(del(1600, 0, "y"), 1020), viewed(17, 17, 1600, "x", "y", "z")}, "content"},
		{"a view of after the record", []any{x, put(9950, 0, "z"), viewed(99, 99, 20000, "x")}, ""},

		{"a key that comes back in time", []any{x, owner("x", 2, 90), del(1050, 110, "x"), put(2050, 0, "x")}, ""},
		{"a key that comes back late", []any{x, owner("x", 2, 90), del(1050, 110, "x"), put(2250, 0, "x")}, "return"},
		{"a key that never comes back", []any{x, owner("x", 2, 90), del(1050, 110, "x")}, "return"},
		{"a key that never was there", []any{owner("x", 2, 90)}, "return"},
		{"a key whose owner has ended", []any{x, owner("x", 2, 15), del(1050, 110, "x")}, ""},
		{"a key whose owner was cut off", []any{x, owner("x", 2, 90), outage("p", 5, 60), del(1050, 110, "x"), put(6950, 0, "x")}, ""},
		{"a key whose owner was cut off before", []any{x, owner("x", 2, 90), outage("p", 5, 60), del(1050, 110, "x"), put(7250, 0, "x")}, "return"},

		{"a record that lacks a put", []any{x, del(1050, 1040, "x")}, "record"},
		{"a record that lacks a deletion", []any{x, put(1050, 0, "x")}, "record"},
		{"a record in the wrong order", []any{y, x}, "record"},
		{"a change whose predecessor was compacted", []any{x, put(1050, Unknown, "x"), put(1060, 1050, "x")}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			found := of(t, test.parts...).Check(bounds)
			isRight := len(found) == 0 && test.want == "" || len(found) == 1 && found[0].Rule == test.want
			if !isRight {
				t.Errorf("want %q, got %v", test.want, found)
			}
		})
	}
}

// TestNoTicks: a history without certain times is no legal history.
func TestNoTicks(t *testing.T) {
	if found := (&History{}).Check(bounds); len(found) != 1 || found[0].Rule != "record" {
		t.Errorf("got %v", found)
	}
}

// TestText: a violation is told in sentences, and once for all requests that show it.
func TestText(t *testing.T) {
	parts := []any{put(110, 0, "x"), put(120, 0, "y"), del(1050, 110, "x")}
	for i := range 3 {
		parts = append(parts, sent(30+float64(i), "x"))
	}
	got := of(t, parts...).Check(bounds)
	want := "gone: sidecar a sent a request of service s to x at 00:00:30.000, which had not been registered since 00:00:11.010. " +
		"The sidecar could reach the registry for 19.0 s of that, and the bound is 10.0 s. So it was 2 times more."
	if len(got) != 1 || got[0].String() != want {
		t.Errorf("got %v\nwant %s", got, want)
	}
}

// TestContentText: of an endpoint that a view should not have, the changes around the view's revision are told.
func TestContentText(t *testing.T) {
	x, moved := put(110, 0, "x"), put(1050, 110, "y")
	moved.Key = x.Key
	for name, c := range map[string]struct {
		parts []any
		want  string
	}{
		"gone":      {[]any{x, del(1050, 110, "x"), put(1070, 0, "x"), viewed(12, 12, 1060, "x")}, "had x (gone at revision 1050, put at revision 1070), which"},
		"moved":     {[]any{x, moved, viewed(12, 12, 1060, "x", "y")}, "had x (put as y at revision 1050), which"},
		"never put": {[]any{x, viewed(12, 12, 1060, "x", "z")}, "had z (never registered), which"},
		"compacted": {[]any{x, listed(del(1600, 0, "x"), 1020), viewed(17, 17, 1600, "x")}, "had x (gone at revision 1600 or after 1020), which"},
	} {
		got := of(t, c.parts...).Check(bounds)
		if len(got) != 1 || !strings.Contains(got[0].Text, c.want) {
			t.Errorf("%s: %v, want %q", name, got, c.want)
		}
	}
}

// TestRead: broken lines are refused, and a line that its writer could not end is left out.
func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "",
		"\n":                                  "line 1: EOF",
		"{\"tick\": {\"revision\": 1}":        "",
		"{\"tick\": {\"revision\": 1}}\n{}\n": "line 2: 0 parts of a history",
		"{\"tick\": {}, \"view\": {}}\n":      "line 1: 2 parts of a history",
		"{\"tock\": {}}\n":                    `line 1: json: unknown field "tock"`,
	} {
		var h History
		if err := h.Read(strings.NewReader(text)); fmt.Sprint(err) != want && (err != nil || want != "") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestReadAccessLog: the requests of services of the registry are read, and none else.
func TestReadAccessLog(t *testing.T) {
	const log = `{"time":"2026-01-01T00:00:01Z","service":"s","endpoint":"x","outcome":"2xx","duration_ms":500}
{"time":"2026-01-01T00:00:02Z","service":"s","error":"no-endpoint","duration_ms":0}
{"time":"2026-01-01T00:00:03Z","service":"s","error":"rate-limited","duration_ms":0}
{"time":"2026-01-01T00:00:04Z","service":"s","endpoint":"x","stream":"connect","duration_ms":1}
{"time":"2026-01-01T00:00:05Z","service":"local","endpoint":"x","duration_ms":1}
`
	var h History
	if err := h.ReadAccessLog("a", []string{"s"}, strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	want := []Request{
		{Sidecar: "a", Service: "s", Endpoint: "x", Began: at(1), Ended: at(1.5)},
		{Sidecar: "a", Service: "s", Began: at(2), Ended: at(2)},
	}
	if !slices.Equal(h.Requests, want) {
		t.Errorf("got %+v", h.Requests)
	}
}
