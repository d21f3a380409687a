package dubbo

import "github.com/remora-proxy/remora/protocol"

// CodecOf is the tag of messages with this serialization id.
func CodecOf(serialization byte) (c protocol.Codec, known bool) {
	switch serialization {
	case Fastjson:
		return protocol.CodecDubboFastjson, true
	case Hessian2:
		return protocol.CodecDubboHessian2, true
	}
	return 0, false
}

// SerializationOf is the serialization id of messages with the tag c.
func SerializationOf(c protocol.Codec) byte {
	if c == protocol.CodecDubboFastjson {
		return Fastjson
	}
	return Hessian2
}
