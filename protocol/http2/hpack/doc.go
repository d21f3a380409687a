// Package hpack compresses header fields (RFC 7541) for package http2. It allocates nothing in
// the steady state, and every table of it has a bound.
package hpack

// DefaultTableSize is the size of a dynamic table before SETTINGS say otherwise. Neither the
// decoder nor the encoder uses more.
const DefaultTableSize = 4096

// entryOverhead counts for each entry of a table beside its text (RFC 7541 section 4.1).
const entryOverhead = 32
