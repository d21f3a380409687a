package protocol

import "github.com/valyala/bytebufferpool"

// Size is the number of bytes that CopyTo copies: of all slices but Service.
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

// CopyFields appends copies of from to to. Their text goes to b, which has room for TextOf(from) bytes.
func CopyFields(to, from []Header, b *bytebufferpool.ByteBuffer) []Header {
	for i := range from {
		at := len(b.B)
		b.B = append(append(b.B, from[i].Name...), from[i].Value...)
		middle := at + len(from[i].Name)
		to = append(to, Header{Name: b.B[at:middle:middle], Value: b.B[middle:len(b.B):len(b.B)], NeverIndexed: from[i].NeverIndexed})
	}
	return to
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
	*dst = Request{
		Codec: r.Codec, Method: copied(r.Method), Path: copied(r.Path), Authority: copied(r.Authority),
		Headers: CopyFields(dst.Headers[:0], r.Headers, b), Trailers: CopyFields(dst.Trailers[:0], r.Trailers, b), Body: copied(r.Body),
		Version: copied(r.Version), Group: copied(r.Group), Timed: r.Timed, OneWay: r.OneWay, Batch: r.Batch, Login: r.Login, NeverIndexed: r.NeverIndexed,
	}
}
