package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// tracing checks the receiver, the service name and the headers of exports.
func (v *validator) tracing() {
	t := &v.config.Tracing
	if u, err := url.Parse(t.Endpoint); t.Endpoint != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		v.report("tracing.endpoint", "expected the URL of an OTLP/HTTP receiver such as http://127.0.0.1:4318, got %q",
			public(t.Endpoint))
	}
	if t.ServiceName == "" {
		v.report("tracing.service_name", "expected a name")
	}
	headers := func(name string) path { return path("tracing.headers").entry(keyAlone(name)) }
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		if !isHeaderName(name) || strings.EqualFold(name, "content-type") || strings.EqualFold(name, "host") {
			v.report(headers(name), "expected the name of a header other than Content-Type and Host")
		}
		if strings.ContainsFunc(t.Headers[name], func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) {
			v.report(headers(name), "expected ASCII without line breaks, because a header carries it")
		}
	}
}
