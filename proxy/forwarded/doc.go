// Package forwarded decides which headers about earlier hops a listener believes of a client:
// X-Forwarded-For and its like. A client outside could write anything there.
//
//	policy.go   Policy of a listener, Client of a connection
//	filter.go   names that are removed
//	nearest.go  the client that another sidecar names
//
// It is pure, and knows no request.
package forwarded
