package protocol

import "testing"

// TestCodecs checks that a codec is known once it has been made, and that two can't have one number.
func TestCodecs(t *testing.T) {
	const unused = 255
	if !CodecHTTP.Known() || Codec(unused).Known() {
		t.Fatal("of the codecs, exactly CodecHTTP must be known")
	}
	t.Cleanup(func() { known[unused] = false })
	if c := NewCodec(unused); !c.Known() {
		t.Error("a new codec is not known")
	}
	defer func() {
		if recover() == nil {
			t.Error("two codecs have one number")
		}
	}()
	NewCodec(unused)
}
