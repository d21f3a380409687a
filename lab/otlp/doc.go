// Package otlp holds a test alone: two sidecars, and a hedge between them, traced
// into the receiver of the OpenTelemetry Collector. It is a module of its own, so
// that the collector stays out of what the sidecar is built from.
//
//	cd lab/otlp && go test .
package otlp
