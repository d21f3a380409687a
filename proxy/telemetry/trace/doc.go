// Package trace is what the core knows of distributed tracing: the context that
// requests carry (W3C Trace Context, https://www.w3.org/TR/trace-context/), and
// the record of a sampled request, from which its spans are made.
//
// It is a leaf: the core fills records in, proxy/otlp exports them.
package trace
