package caching

import (
	"slices"

	"github.com/remora-proxy/remora/protocol"
)

// Identity makes keys of requests of any method: two requests with one key and the same body are
// the same to a service, but for headers that its responses vary by.
type Identity struct {
	names   []string // in lower case
	lengths uint64   // bit n: a header with a name of n bytes, or 64 more, may be part of the key
	claims  *claims
}

// selecting are headers that select another response, or tell one operation from another:
// draft-ietf-httpapi-idempotency-key-header and the attachments of a Dubbo call.
var selecting = []string{
	"range", "if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since",
	"content-type", "content-encoding", "x-forwarded-proto", "idempotency-key", "dubbo-attachments",
}

// NewIdentity returns an Identity whose keys have the values of the named headers, too, and of those that
// may say who asks, but for the ignored ones.
func NewIdentity(names, ignored []string) *Identity {
	d := &Identity{names: lowerAll(slices.Concat(selecting, overrides, names)), claims: newClaims(ignored)}
	for _, name := range d.names {
		d.lengths |= 1 << (len(name) & 63)
	}
	return d
}

// Append appends the key of a request to dst.
func (d *Identity) Append(dst []byte, req *protocol.Request) []byte {
	dst = append(append(dst, req.Method...), '\n')
	dst, _ = appendURI(dst, req)
	hs := req.Headers
	for i, is := d.claims.next(hs, 0); is != noClaim; i, is = d.claims.next(hs, i+1) {
		dst = appendLower(append(dst, "\n~"...), hs[i].Name)
		dst = append(append(dst, ':'), hs[i].Value...)
	}
	for i := range hs {
		h := &hs[i]
		if d.lengths>>(len(h.Name)&63)&1 == 0 {
			continue
		}
		for n, name := range d.names {
			if protocol.EqualFold(h.Name, name) {
				dst = append(append(dst, '\n', 'a'+byte(n)), h.Value...)
			}
		}
	}
	return dst
}
