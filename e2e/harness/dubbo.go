package harness

import (
	"bytes"
	"math"
	"net"

	"github.com/remora-proxy/remora/protocol/dubbo"
)

// ReadFrames reads until at least one frame is complete, and removes the complete ones
// from in.
func ReadFrames(c net.Conn, in *[]byte) (frames []dubbo.Frame, err error) {
	buf := make([]byte, 64<<10)
	for len(frames) == 0 {
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		*in = append(*in, buf[:n]...)
		for {
			f, n, err := dubbo.Decode(*in, math.MaxInt32)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				break
			}
			f.Body = bytes.Clone(f.Body)
			frames, *in = append(frames, f), (*in)[n:]
		}
	}
	return frames, nil
}

// StringType is a string in the types of a call.
const StringType = "Ljava/lang/String;"

// HessianCall returns a call of com.acme.Demo with an argument shorter than 32 bytes.
func HessianCall(method, arg string) (body []byte) {
	for _, s := range []string{"2.0.2", "com.acme.Demo", "0.0.0", method, StringType, arg} {
		body = append(append(body, byte(len(s))), s...)
	}
	return append(body, "HZ"...)
}
