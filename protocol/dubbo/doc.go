// Package dubbo turns bytes into Dubbo 2 frames and back, reads of a call what
// routing needs, and converts between HTTP and Dubbo: a form or JSON into a
// call, an answer into text or JSON. It does no I/O, and allocates nothing per
// message for the calls that it passes on and for those of a form; the sessions
// of the core feed it what arrived and write what it appends.
//
// Two serializations are understood, fastjson (id 6) and hessian2 (id 2). A body
// that is only passed on is never decoded further than Invocation needs it, and
// one in any other serialization can't be routed by what is in it.
//
// Everything that is read is checked: lengths against what is there, nesting
// against maxDepth. Slices of results alias the input.
package dubbo
