package config

import (
	"slices"
	"time"
)

// Default returns the configuration of an empty file: no listener, no service.
func Default() *Config {
	return &Config{
		Node:   Node{ID: ownName()},
		Engine: EngineAuto,
		Via:    "off",
		Log:    Log{Level: LevelInfo, Format: FormatJSON},
		Admin:  Admin{Address: "127.0.0.1:9901"},
		Registry: Registry{
			Etcd: Etcd{Prefix: "/remora/services", LeaseTTL: 10 * time.Second},
		},
		Services: map[string]*Service{},
		Limits: Limits{
			Message: 4 << 20, Header: 64 << 10, Headers: 128, Pipelined: 16,
			Connections: 16384, Streams: 1024, AdminConnections: 64, Buffered: 256 << 20,
			HTTP2: defaultHTTP2(),
		},
		Timeouts: Timeouts{
			Detect: 100 * time.Millisecond, Header: 10 * time.Second, Body: 30 * time.Second,
			Idle: 5 * time.Minute, MinRate: 1 << 10, Stream: 24 * time.Hour, Write: 30 * time.Second, HalfClose: 15 * time.Second, Drain: 30 * time.Second,
		},
		Tracing:   Tracing{Sample: 0.001, ServiceName: "remora", Queue: 2048, Timeout: 10 * time.Second},
		AccessLog: AccessLog{Format: AccessJSON, Sample: 1, Buffer: 4 << 20},
	}
}

// DefaultService returns a service for which the file sets only the name.
func DefaultService(name string) *Service {
	return &Service{
		Name:           name,
		Discover:       DiscoverEtcd,
		Protocol:       defaultProtocol(DiscoverEtcd),
		ProxyProtocol:  ProxyProtocolOff,
		Serialization:  SerializationHessian2,
		LB:             LB{Policy: LBLeastPending, SlowStart: 10 * time.Second, Panic: 0.9, Hash: Hash{Balance: 1.25}},
		Policy:         DefaultPolicy(),
		ConnectTimeout: 250 * time.Millisecond,
		IdleTimeout:    4 * time.Second,
		MaxPending:     1024,
		MaxQueue:       1024,
		Check:          defaultCheck(),
		Allow:          defaultAllow(),
		Breaker:        Breaker{Open: 5 * time.Second, HalfOpen: 1},
		Outlier:        Outlier{Consecutive: 5, SuccessRate: 0.5, Base: time.Second, MaxEjected: 0.5},
	}
}

// defaultProtocol returns what the endpoints of a source speak if the file does not say so. Those
// that a file lists are mostly applications, those in a registry mostly sidecars.
func defaultProtocol(discover string) string {
	if discover == DiscoverStatic {
		return ProtocolHTTP
	}
	return ProtocolLink
}

// DefaultPolicy returns the policy of a service that sets none: one retry where the application
// has not seen the request or may see it twice, and no hedges but a forecast of what they would bring.
func DefaultPolicy() Policy {
	return Policy{
		Timeout: 15 * time.Second, Priority: PriorityOnline,
		Retry: Retry{Attempts: 1, On: []string{RetryConnect, RetryRefused, RetryReset}},
		Hedge: Hedge{
			Mode: HedgeShadow, Class: ClassSize, Quantile: 0.97, MinDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond,
			Budget: 0.05, Max: 1, Sample: 0.03,
		},
	}
}

// DefaultPath returns the path settings of a listener that sets none: no request reaches a
// service by a path that the service reads as another one.
func DefaultPath() Path {
	return Path{Normalize: true, MergeSlashes: true, EscapedSlashes: SlashesReject}
}

// clone returns a copy of p that shares no memory with p.
func (p Policy) clone() Policy {
	p.Retry.On = slices.Clone(p.Retry.On)
	return p
}

// defaultCheck returns a check that is off.
func defaultCheck() Check {
	return Check{Interval: time.Second, Timeout: time.Second, Healthy: 2, Unhealthy: 3, OnDown: "keep"}
}

// defaultAllow returns rules that are enforced once there is one.
func defaultAllow() Allow { return Allow{Enforce: true} }

func defaultHTTP2() HTTP2 {
	return HTTP2{
		Streams: 250, Resets: 1000, Provoked: 200, Continuations: 32, Pings: 200, Settings: 100, EmptyData: 200, Others: 2000,
	}
}
