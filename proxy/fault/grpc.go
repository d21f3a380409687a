package fault

import "github.com/remora-proxy/remora/protocol"

// grpcStatuses are the HTTP statuses that the gRPC codes count as: those of Envoy and of
// google.rpc.Code, but for unimplemented. That is 501 there, but the fault of the caller: else
// anyone who calls what does not exist, such as reflection, ejects endpoints.
var grpcStatuses = [protocol.GRPCCodes]int{
	protocol.GRPCOK:                 200,
	protocol.GRPCCancelled:          499,
	protocol.GRPCUnknown:            500,
	protocol.GRPCInvalidArgument:    400,
	protocol.GRPCDeadlineExceeded:   504,
	protocol.GRPCNotFound:           404,
	protocol.GRPCAlreadyExists:      409,
	protocol.GRPCPermissionDenied:   403,
	protocol.GRPCResourceExhausted:  429,
	protocol.GRPCFailedPrecondition: 400,
	protocol.GRPCAborted:            409,
	protocol.GRPCOutOfRange:         400,
	protocol.GRPCUnimplemented:      404,
	protocol.GRPCInternal:           500,
	protocol.GRPCUnavailable:        503,
	protocol.GRPCDataLoss:           500,
	protocol.GRPCUnauthenticated:    401,
	protocol.GRPCOther:              500,
}

// StatusOfGRPC returns the HTTP status that a call with this code counts as: for the breaker and
// outlier ejection, in statistics, and beside other bad responses.
func StatusOfGRPC(c protocol.GRPCCode) int { return grpcStatuses[c] }

// grpcCodes has the failures whose code is not that of their HTTP status. They are by stable code,
// since a failure may be a copy with another status or text.
var grpcCodes = map[string]protocol.GRPCCode{
	Deadline.Code:         protocol.GRPCDeadlineExceeded,
	TryTimeout.Code:       protocol.GRPCDeadlineExceeded,
	SlowHead.Code:         protocol.GRPCDeadlineExceeded,
	SlowBody.Code:         protocol.GRPCDeadlineExceeded,
	BodyTooSlow.Code:      protocol.GRPCDeadlineExceeded,
	Overloaded.Code:       protocol.GRPCResourceExhausted,
	PoolExhausted.Code:    protocol.GRPCResourceExhausted,
	RateLimited.Code:      protocol.GRPCResourceExhausted,
	Shed.Code:             protocol.GRPCResourceExhausted,
	RequestTooLarge.Code:  protocol.GRPCResourceExhausted,
	TooManyStreams.Code:   protocol.GRPCResourceExhausted,
	ResponseTooLarge.Code: protocol.GRPCResourceExhausted,
	Loop.Code:             protocol.GRPCInternal,
	Unsupported.Code:      protocol.GRPCUnimplemented,
}

// GRPC returns the code that a gRPC caller gets for f.
func (f *Failure) GRPC() protocol.GRPCCode {
	if c, ok := grpcCodes[f.Code]; ok {
		return c
	}
	switch f.Status {
	case 413, 431:
		return protocol.GRPCResourceExhausted
	case 501:
		return protocol.GRPCUnimplemented
	}
	return protocol.GRPCOfHTTP(f.Status)
}
