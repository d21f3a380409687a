// Package trace contains the core's part of distributed tracing: the context in the
// headers of a request (W3C Trace Context, https://www.w3.org/TR/trace-context/), and
// the record of a sampled request, of which its spans are made.
//
//	context.go, state.go  traceparent and tracestate
//	headers.go            these among the headers of a request
//	sampler.go            which requests are sampled
//	record.go             the record
//
// At the start of a request the core reads the context, for each attempt it writes
// one, and at the end it fills a Record. telemetry/otlp exports the records.
package trace
