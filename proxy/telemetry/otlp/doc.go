// Package otlp exports the spans of sampled requests to an OpenTelemetry receiver,
// by OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/).
//
// The loops put records into a bounded list and go on; one goroutine makes spans of
// them and sends them. What there is no room for, and what the receiver does not
// take in time, is dropped and counted: a receiver that is slow, hangs or is gone
// costs spans, never a request.
//
// The messages are OpenTelemetry's own, from go.opentelemetry.io/proto/otlp. They
// are sent by net/http and not by OpenTelemetry's exporter, which brings its SDK,
// a gRPC gateway and settings from the environment along.
package otlp
