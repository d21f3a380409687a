package http1

import "github.com/remora-proxy/remora/protocol"

// extension consumes a byte of a chunk's extensions. They are neither used nor forwarded. But
// decoders that skip what is no extension differ in where they find the end of the line, so the
// grammar is that of RFC 9112 section 7.1.1, where BWS is white space:
//
//	chunk-ext = *( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )
func (d *Body) extension(c byte) error {
	switch {
	case d.part == extQuoted || d.part == extEscape:
		return d.quotedString(c)
	case protocol.TokenChar[c]:
		switch d.part {
		case extStart:
			d.part = extName
		case extValueStart:
			d.part = extValue
		case extName, extValue:
		default:
			return ErrBadChunkExt
		}
	case isBlank(c):
		switch d.part {
		case extName:
			d.part = extNameBlank
		case extValue, extEnd:
			d.part = extBlank
		}
	case c == ';' && d.part != extStart && d.part != extValueStart:
		d.part = extStart
	case c == '=' && (d.part == extName || d.part == extNameBlank):
		d.part = extValueStart
	case c == '"' && d.part == extValueStart:
		d.part = extQuoted
	case c == '\r' && (d.part == extName || d.part == extValue || d.part == extEnd):
		d.part = chunkSizeLF
	default:
		return ErrBadChunkExt
	}
	return nil
}

// quotedString consumes a byte behind the opening quote (RFC 9110 section 5.6.4).
func (d *Body) quotedString(c byte) error {
	switch {
	case c < ' ' && c != '\t' || c == 0x7f:
		return ErrBadChunkExt
	case d.part == extEscape:
		d.part = extQuoted
	case c == '"':
		d.part = extEnd
	case c == '\\':
		d.part = extEscape
	}
	return nil
}
