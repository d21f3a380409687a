// Package mux is what connections that carry many requests at once have in common:
// the table of their streams, and their limits. Package linkconn adds what both ends
// of a link share.
package mux
