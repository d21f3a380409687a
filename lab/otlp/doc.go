// Package otlp has only a test: two sidecars and a hedge between them are traced into the
// receiver of the OpenTelemetry Collector. It is a nested module, so that the sidecar's module
// does not require the collector.
//
//	cd lab/otlp && go test .
package otlp
