package trace

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

const (
	aTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	aSpan  = "00f067aa0ba902b7"
	valid  = "00-" + aTrace + "-" + aSpan + "-01"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, value string
		flags       int // -1 if Parse must refuse the value
	}{
		{"sampled", valid, 1},
		{"not sampled", "00-" + aTrace + "-" + aSpan + "-00", 0},
		{"random, not sampled", "00-" + aTrace + "-" + aSpan + "-02", 2},
		{"unknown flags", "00-" + aTrace + "-" + aSpan + "-ff", 0xff},
		{"later version", "01-" + aTrace + "-" + aSpan + "-01", 1},
		{"later version, with more", "cc-" + aTrace + "-" + aSpan + "-01-what-the-future-holds", 1},
		{"later version, with a dash", "cc-" + aTrace + "-" + aSpan + "-01-", 1},
		{"later version, more without a dash", "cc-" + aTrace + "-" + aSpan + "-01.what", -1},
		{"version 00, with more", valid + "-what", -1},
		{"version 00, with a dash", valid + "-", -1},
		{"version ff", "ff" + valid[2:], -1},
		{"version in capitals", "CC" + valid[2:], -1},
		{"version of other characters", ".0" + valid[2:], -1},
		{"no trace", "00-" + strings.Repeat("0", 32) + "-" + aSpan + "-01", -1},
		{"no parent", "00-" + aTrace + "-" + strings.Repeat("0", 16) + "-01", -1},
		{"trace in capitals", "00-" + strings.ToUpper(aTrace) + "-" + aSpan + "-01", -1},
		{"parent in capitals", "00-" + aTrace + "-" + strings.ToUpper(aSpan) + "-01", -1},
		{"flags in capitals", "00-" + aTrace + "-" + aSpan + "-0A", -1},
		{"flags of other characters", "00-" + aTrace + "-" + aSpan + "-.0", -1},
		{"too short", valid[:54], -1},
		{"empty", "", -1},
		{"space before", " " + valid, -1},
		{"space behind", valid + " ", -1},
		{"trace too short", "00-" + aTrace[1:] + "-" + aSpan + "-001", -1},
		{"trace too long", "00-" + aTrace + "0-" + aSpan[1:] + "-01", -1},
		{"an underscore after the version", "00_" + valid[3:], -1},
		{"an underscore after the trace", valid[:35] + "_" + valid[36:], -1},
		{"an underscore after the parent", valid[:52] + "_" + valid[53:], -1},
		{"underscores", strings.ReplaceAll(valid, "-", "_"), -1},
	} {
		got, ok := Parse([]byte(c.value))
		if ok != (c.flags >= 0) {
			t.Errorf("%s: %q accepted: %v", c.name, c.value, ok)
			continue
		}
		want := Context{}
		if ok {
			want = context(t, aTrace, aSpan, byte(c.flags))
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, want)
		}
	}
}

func TestAppend(t *testing.T) {
	c := context(t, aTrace, aSpan, FlagSampled)
	if got := string(c.Append([]byte("x"))); got != "x"+valid {
		t.Errorf("got %q", got)
	}
	c.Flags = 0xff // reserved flags are not passed on
	if got := string(c.Append(nil)); !strings.HasSuffix(got, "-03") {
		t.Errorf("got %q", got)
	}
}

func context(t *testing.T, trace, span string, flags byte) (c Context) {
	t.Helper()
	for _, part := range []struct {
		dst  []byte
		text string
	}{{c.Trace[:], trace}, {c.Span[:], span}} {
		if n, err := hex.Decode(part.dst, []byte(part.text)); err != nil || n != len(part.dst) {
			t.Fatalf("%q: %v", part.text, err)
		}
	}
	c.Flags = flags
	return c
}

// FuzzParse: Parse accepts exactly the values of the specification's grammar, which
// wellFormed implements independently. A value of version 00 is restored to the byte.
func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte("cc-" + aTrace + "-" + aSpan + "-01-what-the-future-holds"))
	f.Add([]byte("00-" + strings.Repeat("0", 32) + "-" + aSpan + "-01"))
	f.Add([]byte(valid[:54]))
	f.Fuzz(func(t *testing.T, value []byte) {
		c, ok := Parse(value)
		if want := wellFormed(string(value)); ok != want {
			t.Fatalf("%q accepted: %v", value, ok)
		}
		if !ok {
			return
		}
		out := c.Append(nil)
		if len(out) != TextLen || !bytes.Equal(out[3:53], value[3:53]) {
			t.Errorf("%q became %q", value, out)
		}
		again, ok := Parse(out)
		if c.Flags &= FlagSampled | FlagRandom; !ok || again != c {
			t.Errorf("%q reads as %+v, want %+v", out, again, c)
		}
	})
}

func wellFormed(value string) bool {
	parts := strings.SplitN(value, "-", 5)
	if len(parts) < 4 || len(parts) == 5 && parts[0] == "00" || parts[0] == "ff" {
		return false
	}
	for i, size := range []int{2, 32, 16, 2} {
		if len(parts[i]) != size || strings.Trim(parts[i], digits) != "" {
			return false
		}
	}
	return strings.Trim(parts[1], "0") != "" && strings.Trim(parts[2], "0") != ""
}
