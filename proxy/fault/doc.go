// Package fault says why a request, or one of its attempts, came to nothing: the
// stable code and status for the caller, the reason for another sidecar, and what
// the failure permits.
//
//	failure.go  Failure, its retry class, and the list of all
//	reason.go   to and from the reasons of the link
//	codec.go    what a codec's refusal means
//	verdict.go  what a failure says about the service
//
// It knows the codecs and nothing of the proxy.
package fault
