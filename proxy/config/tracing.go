package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Tracing exports the spans of sampled requests over OTLP/HTTP. With an empty Endpoint
// it is off.
type Tracing struct {
	// URL of the OTLP/HTTP receiver, without `/v1/traces`. Empty means off.
	Endpoint string `yaml:"endpoint"`
	// Share sampled of requests without a trace. Others follow their `traceparent`.
	Sample float64 `yaml:"sample" in:"[0,1]"`
	// `service.name` of the spans.
	ServiceName string `yaml:"service_name"`
	// Sent with each export. `/config` does not show their values.
	Headers map[string]string `yaml:"headers" secret:"true"`
	// Requests whose spans wait for export. Spans of more are dropped and counted.
	Queue int `yaml:"queue" min:"1" max:"65536"`
	// For one export, retries included. Then its spans are dropped and counted.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
}

func (t *Tracing) setDefaults() {
	*t = Tracing{Sample: 0.001, ServiceName: "remora", Queue: 2048, Timeout: 10 * time.Second}
}

// check checks the receiver, the service name and the headers of exports.
func (t *Tracing) check(in scope, at path) {
	if u, err := url.Parse(t.Endpoint); t.Endpoint != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		in.report(at.key("endpoint"), "expected the URL of an OTLP/HTTP receiver such as http://127.0.0.1:4318, got %q",
			public(t.Endpoint))
	}
	in.refuseIf(t.ServiceName == "", at.key("service_name"), "expected a name")
	headers := func(name string) path { return at.key("headers").entry(keyAlone(name)) }
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		lower := strings.ToLower(name)
		in.refuseIf(!isHeaderName(name) || lower == "content-type" || lower == "host",
			headers(name), "expected the name of a header other than Content-Type and Host")
		isBad := func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }
		in.refuseIf(strings.ContainsFunc(t.Headers[name], isBad),
			headers(name), "expected ASCII without line breaks, because a header carries it")
	}
}
