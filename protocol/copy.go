package protocol

import "github.com/valyala/bytebufferpool"

// Size is the number of bytes of the request's slices.
func (r *Request) Size() int {
	n := len(r.Method) + len(r.Path) + len(r.Authority) + len(r.Body) + len(r.Version) + len(r.Group)
	return n + TextOf(r.Headers) + TextOf(r.Trailers)
}

// TextOf is the number of bytes of the names and values of hs.
func TextOf(hs []Header) (n int) {
	for i := range hs {
		n += len(hs[i].Name) + len(hs[i].Value)
	}
	return n
}

// CopyTo makes dst, which is empty, a copy of the request as its caller sent it: without a service,
// a deadline, and the number of an attempt. Its slices alias b, which is empty and has room for
// Size bytes.
func (r *Request) CopyTo(dst *Request, b *bytebufferpool.ByteBuffer) {
	copied := func(s []byte) []byte {
		if s == nil {
			return nil
		}
		from := len(b.B)
		b.B = append(b.B, s...)
		return b.B[from:len(b.B):len(b.B)]
	}
	headers := func(to, from []Header) []Header {
		for i := range from {
			to = append(to, Header{Name: copied(from[i].Name), Value: copied(from[i].Value)})
		}
		return to
	}
	*dst = Request{
		Codec: r.Codec, Method: copied(r.Method), Path: copied(r.Path), Authority: copied(r.Authority),
		Headers: headers(dst.Headers[:0], r.Headers), Trailers: headers(dst.Trailers[:0], r.Trailers), Body: copied(r.Body),
		Version: copied(r.Version), Group: copied(r.Group), Timed: r.Timed, OneWay: r.OneWay, Batch: r.Batch, Login: r.Login,
	}
}
