// Package dubbo decodes and encodes Dubbo 2 frames, reads the parts of a call that routing
// needs, and converts between HTTP and Dubbo: a form or JSON into a call, and a response into
// text or JSON. The Dubbo session and upstream feed it the received bytes and write what it
// appends. It does no I/O, keeps no connection, and allocates nothing for forwarded messages
// and for calls from a form.
//
// It supports two serializations, fastjson (id 6) and hessian2 (id 2). A forwarded body is
// decoded only as far as Invocation needs it. A body in another serialization can't be routed
// by its content. All input is checked: lengths against the available bytes, and nesting
// against maxDepth. Slices of results alias the input.
//
//	frame.go       Frame and its header; reader.go divides the input into frames, event.go has heartbeats
//	codec.go       the serializations as codecs; status.go the statuses, errors.go why a message is refused
//	invocation.go  what routing needs of a call
//	call.go        an HTTP request becomes a call: of a form, or of JSON (call_json.go); encode.go writes it
//	reply.go       a response becomes one of HTTP; result.go finds its value
//	types.go       Java types of arguments
//	json.go        JSON in place; text.go escapes
//	hessian.go     hessian2 in place: _append and _encode write it, _json turns it into JSON, _skip skips it
package dubbo
