// Package handover passes the listening sockets of a running sidecar on to the
// process that takes its place, over a Unix socket. The kernel's queue of
// connections that nobody has accepted yet belongs to the listening socket, so none
// is lost.
//
//	successor                              predecessor
//	Dial     ───────────────────────────▶  Door.Accept
//	Receive  ◀───────── offer, sockets ──  Offer
//	   makes itself ready
//	Say      ──────────────────── Ready ▶  Hear
//	                                          stops renewing what it has announced
//	Hear     ◀ Released ─────────────────  Say
//	   accepts, and announces
//	Say      ────────────────── Serving ▶  Hear
//	                                          accepts no more, and drains
//	Outlive  ◀ the end of the process ───
//
// A predecessor that is busy refuses in the place of its offer, and says why. Up to
// Serving, the end of the connection is the end of the attempt, and the predecessor
// goes on as if nothing was. Both may be of different versions of the program: the
// offer is JSON, to which fields may be added, and Version tells when more than that
// changes.
package handover
