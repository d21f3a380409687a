// Package link is the inter-agent protocol, version 1: what two sidecars speak
// to each other over one TCP connection. It is a codec and the scheduling around
// it, with no socket, clock or goroutine: Writer turns messages into bytes, and
// Reader bytes into messages. docs/link-protocol.md is the specification; the
// vectors in testdata are part of it and are run as tests.
//
// On the way through the house it is the upstream's last step on the consumer's
// side and the downstream's first on the provider's. The side that dialled sends
// requests, the side that accepted answers them.
//
// A connection's life:
//
//	w.Preface(role, settings)            // both sides, at once
//	r.Feed(b, h)                         // calls h.OnPreface(version, peer)
//	w.Open(version, peer)                // in OnPreface: frames may leave from here on
//	w.Request(id, req, ttl, owner) ...   // may be called before Open too: it waits
//	conn.Write(w.Append(nil, budget))    // at the end of a turn, while w.Ready()
//	w.Credit(r.Consumed())               // after each Feed
//	w.Close(); r.Close()                 // releases owners and buffers
package link
