package dubbo

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"
)

// timeoutBodies are bodies of calls by what they do with timeouts. In each, %s is a value.
var timeoutBodies = []struct {
	serialization byte
	body          string
}{
	{Fastjson, fastjsonBody(`"2.0.1"`, `"a.B"`, `null`, `"m"`, `"I"`, `1000`, `{"x":"1000","timeout":%s,"y":1000}`)},
	{Fastjson, fastjsonBody(`"2.0.1"`, `"a.B"`, `null`, `"m"`, `""`, `{"_TO": %s }`)},
	{Hessian2, "\x052.0.2\x03a.B\x050.0.0\x01m\x01I\xcb\xe8H\x07timeout%s\x01x\xcb\xe8Z"},
	{Hessian2, "\x052.0.2\x03a.B\x050.0.0\x01m\x00H\x03_TO%sZ"},
}

// hessianNumbers returns n in all forms that have room for it.
func hessianNumbers(n int64) (forms []string) {
	forms = append(forms, string(appendHessianLong(nil, n)), string([]byte{'L', byte(n >> 56), byte(n >> 48),
		byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}))
	if n <= math.MaxInt32 {
		four := []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
		forms = append(forms, string(appendHessianInt(nil, int32(n))), "I"+string(four), "\x59"+string(four))
	}
	digits := fmt.Sprint(n)
	return append(forms, string(rune(len(digits)))+digits)
}

// TestSetTimeLeft checks that both timeouts of a call are shortened, whatever their form, and
// that nothing else changes.
func TestSetTimeLeft(t *testing.T) {
	for _, b := range timeoutBodies {
		for _, n := range []int64{1, 2, 15, 16, 47, 48, 200, 2047, 2048, 0x3ffff, 0x40000, 999_999, math.MaxInt32, math.MaxInt32 + 1, 1 << 40} {
			values := hessianNumbers(n)
			if b.serialization == Fastjson {
				values = []string{fmt.Sprint(n), fmt.Sprintf("%q", fmt.Sprint(n))}
			}
			for _, value := range values {
				for _, left := range []time.Duration{-1, 1, 999 * time.Microsecond, 1500 * time.Microsecond, 99 * time.Millisecond, time.Minute, time.Duration(n) * time.Millisecond / 2, math.MaxInt64} {
					body := fmt.Appendf(nil, b.body, value)
					var inv Invocation
					if err := inv.Parse(b.serialization, body); err != nil || inv.Timeout != time.Duration(n)*time.Millisecond {
						t.Fatalf("%q: timeout %v, %v", body, inv.Timeout, err)
					}
					before := string(body)
					inv.SetTimeLeft(b.serialization, body, left)
					want := min(time.Duration(n)*time.Millisecond, max(left-1, time.Millisecond).Truncate(time.Millisecond))
					if err := inv.Parse(b.serialization, body); err != nil || inv.Timeout != want {
						t.Errorf("%v of %q: %q, timeout %v, %v", left, before, body, inv.Timeout, err)
					}
					at := bytes.IndexByte([]byte(b.body), '%')
					if len(body) != len(before) || string(body[:at]) != before[:at] || string(body[at+len(value):]) != before[at+len(value):] {
						t.Errorf("%v of %q: %q", left, before, body)
					}
				}
			}
		}
	}
}

// TestTwoTimeouts checks that the shorter timeout counts, that a later one of the same name
// overrides it, and that each is shortened by itself.
func TestTwoTimeouts(t *testing.T) {
	body := []byte(fastjsonBody(`"2.0.1"`, `"a.B"`, `null`, `"m"`, `""`, `{"timeout":"5","timeout":"3000","_TO":1000,"to":1}`))
	var inv Invocation
	if err := inv.Parse(Fastjson, body); err != nil || inv.Timeout != time.Second {
		t.Errorf("timeout %v, %v", inv.Timeout, err)
	}
	inv.SetTimeLeft(Fastjson, body, 1501*time.Millisecond)
	if want := `{"timeout":"5","timeout":"1500","_TO":1000,"to":1}`; !bytes.Contains(body, []byte(want)) {
		t.Errorf("%q, want %s", body, want)
	}
	inv.SetTimeLeft(Fastjson, body, 7500*time.Microsecond)
	if want := `{"timeout":"5","timeout":"0007","_TO":   7,"to":1}`; !bytes.Contains(body, []byte(want)) {
		t.Errorf("%q, want %s", body, want)
	}
}

// TestNoTimeouts: attachments that are no number of milliseconds stay as they are, beside a timeout that is shortened.
func TestNoTimeouts(t *testing.T) {
	for _, value := range []string{
		`0.5`, `00`, `0`, `-0`, `-1`, `-1000`, `1e3`, `1000.0`, `99999999999999999999`, `true`, `null`, `{"a":0}`, `[0]`, `""`, `"0"`, `"0.5"`, `"-1"`, `"abc"`,
	} {
		body := []byte(fastjsonBody(`"2.0.1"`, `"a.B"`, `null`, `"m"`, `""`, `{"timeout":`+value+`,"_TO":1000}`))
		var inv Invocation
		if inv.Parse(Fastjson, body) != nil {
			continue // no JSON
		}
		for _, left := range []time.Duration{-time.Second, 0, time.Minute, 501 * time.Millisecond} {
			inv.SetTimeLeft(Fastjson, body, left)
			if !bytes.Contains(body, []byte(`{"timeout":`+value+`,"_TO":`)) || inv.Parse(Fastjson, body) != nil {
				t.Fatalf("%s, %v left: %q", value, left, body)
			}
		}
	}
	for _, value := range []string{"\x8f", "\x90", "\xe0", "\x5b", "N", "\x030.5", "\x00", "T"} {
		body := []byte("\x052.0.2\x03a.B\x050.0.0\x01m\x00H\x07timeout" + value + "\x03_TO\xcb\xe8Z")
		var inv Invocation
		if err := inv.Parse(Hessian2, body); err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		inv.SetTimeLeft(Hessian2, body, 501*time.Millisecond)
		if !bytes.Contains(body, []byte("timeout"+value+"\x03_TO\xc9\xf4Z")) {
			t.Errorf("%q: %q", value, body)
		}
	}
}

// checkSetTimeLeft checks that a call with a shorter timeout is the same call otherwise.
func checkSetTimeLeft(t *testing.T, serialization byte, body []byte) {
	const left = 20 * time.Millisecond
	var before, after Invocation
	if err := before.Parse(serialization, body); err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(body)
	new(Invocation).SetTimeLeft(serialization, changed, left)
	if err := after.Parse(serialization, changed); err != nil {
		t.Fatalf("%q is no call: %v", changed, err)
	}
	want := min(before.Timeout, left)
	if before.Timeout = want; show(&before) != show(&after) {
		t.Errorf("%q becomes %q:\n%s, want\n%s", body, changed, show(&after), show(&before))
	}
	if before.timeouts[0].text == nil && before.timeouts[1].text == nil && !bytes.Equal(body, changed) {
		t.Errorf("%q becomes %q", body, changed)
	}
}

// TestTimeLeftOfNoCall: a body that is no call stays as it is, although it begins like one.
func TestTimeLeftOfNoCall(t *testing.T) {
	for name, c := range map[string]struct {
		serialization byte
		body          string
	}{
		"bytes behind a call":        {Hessian2, "\x052.0.2\x03a.B\x050.0.0\x01m\x00H\x07timeout\xd4\x13\x88ZN"},
		"types of no parameters":     {Hessian2, "\x052.0.2\x03a.B\x050.0.0\x01m\x01vH\x07timeout\xd4\x13\x88Z"},
		"an unknown serialization":   {3, "\x052.0.2\x03a.B\x050.0.0\x01m\x00H\x07timeout\xd4\x13\x88Z"},
		"a line behind a call":       {Fastjson, fastjsonBody(`"2.0.2"`, `"a.B"`, `null`, `"m"`, `""`, `{"timeout":"5000"}`) + "x"},
		"types of no line of a call": {Fastjson, fastjsonBody(`"2.0.2"`, `"a.B"`, `null`, `"m"`, `"v"`, `{"timeout":"5000"}`)},
	} {
		var inv Invocation
		body := []byte(c.body)
		if inv.SetTimeLeft(c.serialization, body, time.Second); string(body) != c.body {
			t.Errorf("%s: %q becomes %q", name, c.body, body)
		}
	}
}

// TestCallTimeLeft checks that a converted call says the time left, whatever its caller attached.
func TestCallTimeLeft(t *testing.T) {
	for _, attached := range []string{"x=1", "timeout=9000", "_TO=soon, timeout=1, y=2"} {
		for _, serialization := range []byte{Fastjson, Hessian2} {
			c := parsed(t, form("interface=a.B&method=m", header("dubbo-attachments", attached)))
			c.SetTimeLeft(1500 * time.Microsecond)
			c.SetTimeLeft(1234567 * time.Microsecond)
			frame, err := c.AppendFrame(nil, serialization, 1)
			if err != nil {
				t.Fatal(err)
			}
			var inv Invocation
			if err := inv.Parse(serialization, frame[HeaderSize:]); err != nil || inv.Timeout != 1234*time.Millisecond || inv.timeouts[0].time != inv.timeouts[1].time {
				t.Errorf("%s: %v, %+v", attached, err, inv.timeouts)
			}
			if n := bytes.Count(frame, []byte("timeout")); n != 1 {
				t.Errorf("%s: %q", attached, frame)
			}
		}
	}
}

// TestDurationOfMillis: what does not fit a Duration is no timeout.
func TestDurationOfMillis(t *testing.T) {
	const most = (1<<63 - 1) / int64(time.Millisecond)
	for n, want := range map[int64]time.Duration{
		-1: 0, 0: 0, 1: time.Millisecond, most: time.Duration(most) * time.Millisecond, most + 1: 0, 1<<63 - 1: 0,
	} {
		if got := durationOfMillis(n); got != want {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
}
