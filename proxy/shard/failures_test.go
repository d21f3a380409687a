package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
)

// TestReportStream: a stream that failed counts for its listener and code, and for a service or none.
func TestReportStream(t *testing.T) {
	for service, unrouted := range map[string]uint64{"": 1, "shop": 0} {
		s, _ := newShard(1, config.Limits{Buffered: mib, Message: mib})
		var log linesLog
		s.Log = newLimitedLogger(&log, s.Loop)
		ReportStream(s, Client{Listener: "in", Addr: "10.0.0.2:1"}, service, fault.NoRoute)
		failed := uint64(0)
		for key, n := range s.Stats.Errors {
			if key.Listener != "in" || key.Code != fault.NoRoute.Code {
				t.Errorf("service %q: %+v", service, key)
			}
			failed += n
		}
		if failed != 1 || s.Stats.Unrouted["in"] != unrouted || len(log) != 1 {
			t.Errorf("service %q: %d failed, %d unrouted, logged %q", service, failed, s.Stats.Unrouted["in"], log)
		}
	}
}

// TestLogExample: an example names the request as far as it is known, without its query, and without what could do harm
// or fill the log.
func TestLogExample(t *testing.T) {
	most := strings.Repeat("x", maxExample)
	begin := func(msg string, f *fault.Failure) string {
		return fmt.Sprintf("%s[listener in code %s reason %s peer 10.0.0.2:1", msg, f.Code, f.Text)
	}
	for _, c := range []struct {
		service string
		e       Example
		f       *fault.Failure
		want    string // "" means that there is no line
	}{
		{"", Example{}, fault.NoRoute, begin("request refused", fault.NoRoute) + " omitted 0]"},
		{"shop", Example{}, fault.Reset, begin("request failed", fault.Reset) + " service shop omitted 0]"},
		{"shop", Example{Method: []byte("GET"), Host: []byte("a"), Path: []byte("/p?secret=1")}, fault.Reset,
			begin("request failed", fault.Reset) + " service shop method GET host a path /p omitted 0]"},
		{"", Example{Path: []byte("/\x1b[2J")}, fault.NoRoute, begin("request refused", fault.NoRoute) + " path /\ufffd[2J omitted 0]"},
		{"", Example{Host: []byte(most)}, fault.NoRoute, begin("request refused", fault.NoRoute) + " host " + most + " omitted 0]"},
		{"", Example{Host: []byte(most + "x")}, fault.NoRoute, begin("request refused", fault.NoRoute) + " host " + most + "… omitted 0]"},
		{"shop", Example{}, fault.NotAllowed, ""},
		{"shop", Example{}, fault.Connect, ""},
	} {
		var log linesLog
		w := &Shard{Log: newLimitedLogger(&log, &stopped{})}
		for range 2 { // the second has no line
			LogExample(w, Client{Listener: "in", Addr: "10.0.0.2:1"}, c.service, c.e, c.f)
		}
		if want := slices.DeleteFunc([]string{c.want}, func(s string) bool { return s == "" }); !slices.Equal(log, want) {
			t.Errorf("got  %q\nwant %q", log, want)
		}
	}
}
