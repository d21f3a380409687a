// Package handover passes the listening sockets of a running sidecar to the process
// that replaces it, over a Unix socket. The kernel's queue of connections that are
// not accepted yet belongs to the listening socket, so no connection is lost. Only
// package sidecar uses this one, at its start and for a hot restart.
//
//	successor                              predecessor
//	Dial     ───────────────────────────▶  Listener.Accept
//	Receive  ◀───────── offer, sockets ──  Offer
//	   starts, but doesn't accept yet
//	Say      ──────────────────── Ready ▶  Hear
//	                                          stops renewing its registrations
//	Hear     ◀ Released ─────────────────  Say
//	   accepts, and registers
//	Say      ────────────────── Serving ▶  Hear
//	                                          stops accepting, and drains
//	Outlive  ◀ the end of the process ───
//
// A predecessor that is busy sends a refusal with a reason instead of its offer. If
// the connection ends before Serving, the hot restart has failed, and the
// predecessor goes on as before. The two processes may be different versions of the
// program: the offer is JSON, to which fields may be added, and Version changes with
// any other part of the protocol.
package handover
