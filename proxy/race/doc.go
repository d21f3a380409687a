// Package race is the attempts of one request: which endpoint gets the request, when the request is sent again or
// hedged, and which response wins. A race knows the request as bytes with a deadline and a key. It tells its
// owner once what came of the request.
//
//	race.go      Start, the outcome, Stop, Cancel
//	attempt.go   an attempt, from its launch until it is sent
//	end.go       the ways in which an attempt ends, and what is given back in which order
//	visit.go     an attempt as its endpoint counts it: load, and a verdict
//	asking.go    picks endpoints: by the answers of those that were asked for their load, or by the policy
//	state.go     the states of races, attempts and streams
//	policy.go    how the requests of a route race
//	hedge.go     the hedge timer and the gates
//	learn.go     what attempts teach the route, the service and the endpoints
//	tied.go      hedges that wait at their endpoint until the primary starts
//	firstbyte.go heads of streams that are held until the first byte of a body
//	retry.go     win, wait, retry or fail; the timeout of one try
//	outgoing.go  the request of an attempt, as its carrier sends it
//	interim.go   interim responses, ahead of the one response
//	response.go  a response, with its memory
//	spans.go     the attempts in a trace
//	upstream.go  the interfaces of upstreams: Upstream and Carrier; queue.go for those that wait
//	stream.go    Stream: what the carrier of a stream has of it; loopstream.go the stream on its loop
//	streamrace.go the race for the endpoint of a stream that was opened
//	source.go    where the body of a stream comes from
//
// Most tests of races are in package exchange, where requests pass a simulated mesh.
package race
