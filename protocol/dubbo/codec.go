package dubbo

import "github.com/remora-proxy/remora/protocol"

// The codecs of calls and replies, by the serialization of their bodies.
var (
	CodecFastjson = protocol.NewCodec(1)
	CodecHessian2 = protocol.NewCodec(2)
)

// CodecOf returns the codec of messages with a serialization id.
func CodecOf(serialization byte) (c protocol.Codec, known bool) {
	switch serialization {
	case Fastjson:
		return CodecFastjson, true
	case Hessian2:
		return CodecHessian2, true
	}
	return 0, false
}

// SerializationOf returns the serialization id of messages with the codec c.
func SerializationOf(c protocol.Codec) byte {
	if c == CodecFastjson {
		return Fastjson
	}
	return Hessian2
}
