// Package otlp exports the spans of sampled requests to an OpenTelemetry receiver,
// by OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/).
//
// At the end of a sampled request its loop adds a record to a bounded queue. One
// goroutine makes spans of the records and sends them. Spans are dropped and counted
// if the queue is full, or if the receiver does not accept them in time. So a
// receiver that is slow, hangs or has gone costs spans, but no request waits.
//
// The messages are OpenTelemetry's own, from go.opentelemetry.io/proto/otlp. They
// are sent with net/http. OpenTelemetry's exporter would add its SDK, a gRPC gateway
// and settings from the environment.
package otlp
