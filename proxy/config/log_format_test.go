package config

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestFormatParts(t *testing.T) {
	l := AccessLog{Format: `{{"a": "{path}"}} {header User-Agent}x`}
	got, err := l.Parts()
	want := []FormatPart{
		{Text: `{"a": "`}, {Name: "path", Quoted: true}, {Text: `"} `}, {Name: "header NAME", Header: "user-agent"}, {Text: "x"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, named := range []string{"", AccessJSON} {
		if got, err := (&AccessLog{Format: named}).Parts(); got != nil || err != nil {
			t.Errorf("%q: %v, %v", named, got, err)
		}
	}
	for _, named := range []string{AccessCommon, AccessCombined} {
		if got, err := (&AccessLog{Format: named}).Parts(); len(got) < 10 || err != nil {
			t.Errorf("%q: %v, %v", named, got, err)
		}
	}
}

func TestFormatRules(t *testing.T) {
	with := func(format string) string { return "access_log: {path: /a, format: " + strconv.Quote(format) + "}" }
	var all strings.Builder
	for _, name := range LogPlaceholders {
		all.WriteString("{" + strings.Replace(name, "NAME", "x-tenant", 1) + "} ")
	}
	checkRules(t, []rule{
		{with("json"), ""},
		{with("combined"), ""},
		{with(all.String()), ""},
		{with("{time} {path}\t"), ""},
		{with("{patth}"), "access_log.format: unknown placeholder {patth}; did you mean path?"},
		{with("{peer-address}"), "unknown placeholder {peer-address}; expected one of time, "},
		{with("combine"), "did you mean combined?"},
		{with("path"), "text with placeholders such as {path}"},
		{with("{path"), "a { without }"},
		{with("path}"), "a } without {"},
		{with("{header}"), "as in {header user-agent}"},
		{with("{header a:b}"), "as in {header user-agent}"},
		{with("{header X-Remora-Class}"), "removes its own headers"},
		{with("{path} {path}"), "{path} is there twice"},
		{with("{header A} {header a}"), "is there twice"},
		{with("{path}\n"), "no line breaks"},
		{with("{path}" + strings.Repeat("x", 1024)), "at most 1024 bytes"},
		{with("{header a}{header b}{header c}{header d}{header e}{header f}{header g}{header h}{header i}"), "at most 8 headers"},
		{"access_log: {format: common}", "expected a file, stdout or stderr"},
	})
}
