package caching

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol"
)

// NotModified reports whether the client of a request has the response already, which has these
// values of ETag and Last-Modified. nil means that it has none (RFC 9111 section 4.3.2).
func (a *Ask) NotModified(tag, modified []byte) bool {
	if a.ifNoneMatch != nil {
		return string(a.ifNoneMatch) == "*" || tag != nil && hasTag(a.ifNoneMatch, tag)
	}
	if a.ifModifiedSince == nil || modified == nil {
		return false
	}
	if bytes.Equal(a.ifModifiedSince, modified) {
		return true
	}
	since, ok := Date(a.ifModifiedSince)
	changed, known := Date(modified)
	return ok && known && changed <= since
}

// hasTag reports whether a list has a tag, by weak comparison. A tag may have commas.
func hasTag(list, tag []byte) bool {
	tag = bytes.TrimPrefix(tag, weak)
	for len(list) > 0 {
		i := skipBlank(list, 0)
		if i < len(list) && list[i] == ',' {
			list = list[i+1:]
			continue
		}
		item := bytes.TrimPrefix(list[i:], weak)
		end := len(item)
		if len(item) > 0 && item[0] == '"' {
			if quote := bytes.IndexByte(item[1:], '"'); quote >= 0 {
				end = quote + 2
			}
		} else if comma := bytes.IndexByte(item, ','); comma >= 0 {
			end = comma
		}
		if bytes.Equal(bytes.TrimRight(item[:end], " \t"), tag) {
			return true
		}
		list = item[end:]
	}
	return false
}

var weak = []byte("W/")

// NextName returns the first name of a list such as the value of Vary, and what follows.
func NextName(list []byte) (name, rest []byte) {
	for len(list) > 0 {
		member, tail, _ := bytes.Cut(list, comma)
		list = tail
		if name = bytes.Trim(member, " \t"); len(name) > 0 {
			return name, list
		}
	}
	return nil, nil
}

var comma = []byte(",")

// AppendNames appends the names of Vary in lower case, with a comma behind each. any reports
// whether one is "*": nobody knows what else the response varies by.
func AppendNames(dst []byte, hs []protocol.Header) (names []byte, any bool) {
	for i := range hs {
		if !protocol.EqualFold(hs[i].Name, "vary") {
			continue
		}
		for name, rest := NextName(hs[i].Value); name != nil; name, rest = NextName(rest) {
			any = any || string(name) == "*"
			dst = append(append(dst, bytes.ToLower(name)...), ',')
		}
	}
	return dst, any
}

// AppendVariant appends the names of AppendNames, with what a request has under each.
func AppendVariant(dst, names []byte, hs []protocol.Header) []byte {
	for name, rest := NextName(names); name != nil; name, rest = NextName(rest) {
		dst = append(append(append(dst, '\n'), name...), ':')
		for i := range hs {
			if bytes.EqualFold(hs[i].Name, name) {
				dst = append(append(dst, hs[i].Value...), ',')
			}
		}
	}
	return dst
}
