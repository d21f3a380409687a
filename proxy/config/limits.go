package config

// Limits bound what a peer can make the sidecar hold. Sizes are in bytes.
type Limits struct {
	// Largest body that is handled whole. A longer one is a stream. At most `limits.buffered`.
	Message int64 `yaml:"message" unit:"size" min:"1KiB" max:"1GiB" reload:"next message; on links next link"`
	// Request line and header section. More: 431 `header-too-large`, 414 `target-too-long`.
	Header int64 `yaml:"header" unit:"size" min:"1KiB" max:"1GiB" reload:"next message; on links next link"`
	// Header lines. All cookies of a request over HTTP/2 count as one. More: 431 `too-many-headers`.
	Headers int `yaml:"headers" min:"1" max:"65535" reload:"next message; on links next link"`
	// Requests received but not answered on one HTTP connection. More: 429 `too-many-pipelined`.
	Pipelined int `yaml:"pipelined" min:"1" max:"65535"`
	// Requests on one HTTP connection, which then closes. 0 means no limit.
	Requests int `yaml:"requests" max:"1000000000"`
	// Accepted connections of the process. One more is closed at once.
	Connections int `yaml:"connections" min:"1" max:"1000000000" reload:"restart"`
	// Accepted connections per IPv4 address or IPv6 /64. One more is closed at once. 0 means a quarter of all, off loopback. Those of Unix sockets do not count.
	PerSource int `yaml:"per_source" max:"1000000000" reload:"restart"`
	// Streams at a time. One more takes the place of the oldest one of the source that has the most, or gets 503 `too-many-streams`.
	Streams int `yaml:"streams" min:"1" max:"1000000000"`
	// Connections of the admin API. When all are taken, a new connection closes an old one: of the source with the most connections, the connection that has waited longest for a request. A quarter is for sources that have [checked the health](operations.md#who-may-call-the-admin-api).
	AdminConnections int `yaml:"admin_connections" min:"1" max:"65536" reload:"restart"`
	// Messages in memory. Above it, large holders get 503 `overloaded`; a quarter above it, 503 `shed`.
	Buffered int64 `yaml:"buffered" unit:"size" min:"1MiB" max:"1024GiB"`

	HTTP2 HTTP2 `yaml:"http2"`
}

func (l *Limits) setDefaults() {
	*l = Limits{
		Message: 4 << 20, Header: 64 << 10, Headers: 128, Pipelined: 16,
		Connections: 16384, Streams: 1024, AdminConnections: 64, Buffered: 256 << 20,
	}
}

// check refuses a message that could never be whole.
func (l *Limits) check(in scope, at path) {
	in.refuseIf(l.Message > l.Buffered, at.key("message"),
		"larger than limits.buffered (%s), so no such message could pass", formatSize(l.Buffered))
}

// HTTP2 are the limits of a client's connection by HTTP/2. All but Streams and Continuations bound
// counts of what the client sends without a request or data in return: each response takes one off
// each count, and each second a tenth of the limit. Each DATA frame with data, either way, takes two
// off Others, and one off the rest but Resets and Provoked. Above a bound the connection ends with GOAWAY and
// ENHANCE_YOUR_CALM, and a failure `http2-flood` is counted.
type HTTP2 struct {
	// Requests at a time on a connection, as the client is told. One more is refused.
	Streams int `yaml:"streams" min:"1" max:"4096" reload:"next connection"`
	// RST_STREAM received in the first second of a request.
	Resets int `yaml:"resets" min:"1" max:"1000000" reload:"next connection"`
	// Errors of the client for which a stream is reset.
	Provoked int `yaml:"provoked" min:"1" max:"1000000" reload:"next connection"`
	// CONTINUATION frames of one header section.
	Continuations int `yaml:"continuations" min:"1" max:"65536" reload:"next connection"`
	// PING received.
	Pings int `yaml:"pings" min:"1" max:"1000000" reload:"next connection"`
	// SETTINGS received that set something.
	Settings int `yaml:"settings" min:"1" max:"1000000" reload:"next connection"`
	// DATA received that has neither data nor END_STREAM.
	EmptyData int `yaml:"empty_data" min:"1" max:"1000000" reload:"next connection"`
	// WINDOW_UPDATE, PRIORITY and empty SETTINGS, and frames of unknown types or of streams that are over. 512 bytes of data sent pay for one.
	Others int `yaml:"others" min:"1" max:"1000000" reload:"next connection"`
}

func (h *HTTP2) setDefaults() {
	*h = HTTP2{
		Streams: 250, Resets: 1000, Provoked: 200, Continuations: 32, Pings: 200, Settings: 100, EmptyData: 200, Others: 2000,
	}
}
