// Package fault defines the failures of requests and attempts: the stable code and status for
// the caller, the reason for another sidecar, and the retries that the failure permits.
//
//	malformed.go failures for the errors of codecs
//	grpc.go      failures and responses as gRPC codes
//	failure.go   Failure, its retry class, and the list of all failures
//	reason.go    failures to and from what another sidecar is told
//	verdict.go   failures and responses as verdicts on a service
//
// It knows the codecs and nothing of the proxy.
package fault
