// Package trace is what the core knows of distributed tracing: the context that
// requests carry (W3C Trace Context, https://www.w3.org/TR/trace-context/), and
// the record of a sampled request, from which its spans are made.
//
//	context.go, state.go  traceparent and tracestate
//	headers.go            these among the headers of a request
//	sampler.go            which requests are sampled
//	record.go             the record
//
// The core fills records in, telemetry/otlp exports them.
package trace
