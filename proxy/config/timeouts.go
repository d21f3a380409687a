package config

import "time"

// Timeouts of downstream connections.
type Timeouts struct {
	// For a redirected connection, or the client of a tunnel, to show that it speaks HTTP. Then it passes through.
	Detect time.Duration `yaml:"detect" min:"1ms" reload:"restart"`
	// From first byte to end of header section. Then 408 `header-timeout`.
	Header time.Duration `yaml:"header" min:"1ms"`
	// From the end of the header section to the end of the body. Then 408 `body-timeout`.
	Body time.Duration `yaml:"body" min:"1ms"`
	// From a response to the next request. Then the connection closes.
	Idle time.Duration `yaml:"idle" min:"1ms"`
	// Bytes a second, over 10 s, at which a client must send or read the body of a stream. A slower sender gets 408 `body-too-slow`, a slower reader a reset. 0 means any rate.
	MinRate int64 `yaml:"min_rate" unit:"size" max:"1GiB"`
	// For a whole stream. Then it is reset. 0 means no limit.
	Stream time.Duration `yaml:"stream"`
	// While the kernel takes no more output, because the peer reads nothing. Then the connection is reset.
	Write time.Duration `yaml:"write" min:"1ms"`
	// While a client that has ended its side of the connection gets nothing: no response, and no more of a stream. Then it counts as gone, and its requests are cancelled. 0 means at once. ([half-closes](strictness.md#half-closes))
	HalfClose time.Duration `yaml:"half_close"`
	// For work in flight when the process or a listener ends. Then it is cut off. 0 means at once.
	Drain time.Duration `yaml:"drain"`
}

func (t *Timeouts) setDefaults() {
	*t = Timeouts{
		Detect: 100 * time.Millisecond, Header: 10 * time.Second, Body: 30 * time.Second, Idle: 5 * time.Minute, MinRate: 1 << 10,
		Stream: 24 * time.Hour, Write: 30 * time.Second, HalfClose: 15 * time.Second, Drain: 30 * time.Second,
	}
}
