// Package affinity makes the keys by which requests with something in common go to one endpoint, and
// the cookies that keep the requests of a session together.
package affinity

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/route"
)

// Keys makes the keys of the requests to a service. It does not change.
type Keys struct {
	from  config.Hash
	after string // what follows the value in the cookie of a new session; "" means that none is set
}

// New returns the keys of a service, or nil if its policy needs none.
func New(c *config.LB) *Keys {
	if c.Policy != config.LBConsistentHash {
		return nil
	}
	k := &Keys{from: c.Hash}
	k.from.Header = strings.ToLower(k.from.Header)
	if k.from.TTL > 0 {
		k.after = attributes(k.from.TTL)
	}
	return k
}

// Of returns the key of a request from a peer at remote. It is 0 if the request has none. All
// processes make the same key of the same text.
func (k *Keys) Of(req *protocol.Request, remote string) uint64 {
	var text []byte
	switch {
	case k.from.Source:
		return k.OfPeer(remote)
	case k.from.Path:
		text, _, _ = bytes.Cut(req.Path, query)
	case k.from.Query != "":
		text, _ = route.Parameter(req.Path, k.from.Query)
	case k.from.Cookie != "":
		text = cookie(req.Headers, k.from.Cookie)
	default:
		text = protocol.Find(req.Headers, k.from.Header)
	}
	return sum(text)
}

var query = []byte("?")

// OfPeer is Of for a stream of bytes, of which only the peer is known.
func (k *Keys) OfPeer(remote string) uint64 {
	peer := loop.PeerAddr(remote)
	if !k.from.Source || !peer.IsValid() {
		return 0
	}
	source := loop.Source(peer).As16()
	return sum(source[:])
}

func sum(text []byte) uint64 {
	if len(text) == 0 {
		return 0
	}
	return xxhash.Sum64(text)
}

// Session returns the key of a new session, and appends its Set-Cookie (RFC 6265 section 4.1) to
// dst. random is its value, and secure reports whether the client uses TLS. Without a ttl there are
// no such sessions: the key is random, and nothing is appended.
func (k *Keys) Session(dst []byte, random uint64, secure bool) (cookie []byte, key uint64) {
	if k.after == "" {
		return dst, random
	}
	dst = append(dst, k.from.Cookie...)
	dst = append(dst, '=')
	start := len(dst)
	dst = strconv.AppendUint(dst, random, 36)
	key = sum(dst[start:])
	return appendAttributes(dst, k.after, secure), key
}
