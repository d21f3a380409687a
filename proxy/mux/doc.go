// Package mux has what connections that carry many requests at a time share: the table of
// their streams, and their limits. Package linkconn adds what both ends of a link share.
package mux
