package dubbo

// The protocol versions that calls announce. From 2.0.2 on a provider adds attachments to its
// responses, which an HTTP client can't use. Providers with fastjson know the version before.
const (
	versionFastjson = "2.0.1"
	versionHessian2 = "2.0.2"
)

// AppendFrame appends the call as a request. After an error dst is returned unchanged.
func (c *Call) AppendFrame(dst []byte, serialization byte, id int64) ([]byte, error) {
	start := len(dst)
	out := AppendHeader(dst, &Frame{Request: true, TwoWay: true, Serialization: serialization, ID: id})
	switch serialization {
	case Fastjson:
		out = c.appendFastjson(out)
	case Hessian2:
		var ok bool
		if out, ok = c.appendHessian2(out); !ok {
			return dst, ErrBadArgument
		}
	default:
		return dst, ErrSerialization
	}
	return endFrame(out, start), nil
}

func (c *Call) appendFastjson(dst []byte) []byte {
	dst = append(dst, `"`+versionFastjson+"\"\n"...)
	dst = appendLine(dst, c.Interface)
	if len(c.Version) > 0 {
		dst = appendLine(dst, c.Version)
	} else {
		dst = append(dst, "null\n"...)
	}
	dst = appendLine(dst, c.Method)
	dst = appendLine(dst, c.Types)
	for i := range c.args {
		if a := &c.args[i]; a.json {
			dst = append(appendCompact(dst, a.text), '\n')
		} else {
			dst = appendLine(dst, a.text)
		}
	}
	dst = append(dst, `{"path":`...)
	dst = appendJSONString(dst, c.Interface)
	if len(c.Group) > 0 {
		dst = append(dst, `,"group":`...)
		dst = appendJSONString(dst, c.Group)
	}
	for _, a := range c.attachments {
		dst = append(dst, ',')
		dst = appendJSONString(dst, a.name)
		dst = append(dst, ':')
		dst = appendJSONString(dst, a.value)
	}
	return append(dst, "}\n"...)
}

func appendLine(dst, text []byte) []byte {
	return append(appendJSONString(dst, text), '\n')
}

func (c *Call) appendHessian2(dst []byte) ([]byte, bool) {
	dst = append(dst, byte(len(versionHessian2)))
	dst = append(dst, versionHessian2...)
	dst = appendHessianString(dst, c.Interface)
	if len(c.Version) > 0 {
		dst = appendHessianString(dst, c.Version)
	} else {
		dst = append(dst, byte(len(noVersion)))
		dst = append(dst, noVersion...)
	}
	dst = appendHessianString(dst, c.Method)
	dst = appendHessianString(dst, c.Types)
	e := hessianEncoder{dst: dst, text: c.scratch}
	types := c.Types
	for i := range c.args {
		n := descriptorLen(types)
		e.argument(&c.args[i], types[:n])
		types = types[n:]
	}
	c.scratch = e.text
	dst = append(e.dst, "H\x04path"...)
	dst = appendHessianString(dst, c.Interface)
	if len(c.Group) > 0 {
		dst = append(dst, "\x05group"...)
		dst = appendHessianString(dst, c.Group)
	}
	for _, a := range c.attachments {
		dst = appendHessianString(dst, a.name)
		dst = appendHessianString(dst, a.value)
	}
	return append(dst, 'Z'), !e.bad
}
