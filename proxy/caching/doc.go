// Package caching decides what a shared cache of HTTP may store, and for whom it may use what it
// has stored (RFC 9111). It is pure: time is passed in, and it knows no exchange.
//
//	identity.go which requests are the same: Identity
//	claims.go   which headers may say who asks: claims
//	matcher.go  matcher, which finds words in their names
//	hash.go     hashes of keys
//	ask.go      Reader, which makes the key of a request and notes what it says to caches: Ask
//	fact.go     Policy, which reads a response: Fact
//	control.go  the directives of Cache-Control
//	match.go    conditions of requests, and what a response varies by
//	date.go     dates of HTTP
//
// Package store keeps the responses.
package caching
