package protocol

import (
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestParseTimeout checks what values mean, and which are ignored.
func TestParseTimeout(t *testing.T) {
	const ignored = -1
	for _, c := range []struct {
		f     TimeoutField
		value string
		want  time.Duration
	}{
		{OwnTimeout, "250", 250 * time.Millisecond},
		{OwnTimeout, "0250", 250 * time.Millisecond},
		{OwnTimeout, "0", 0},
		{OwnTimeout, "-1", 0},
		{OwnTimeout, "-999999999999999999", 0},
		{OwnTimeout, "999999999999999999", MaxTimeout / time.Millisecond * time.Millisecond},
		{OwnTimeout, "9223372036854775807", MaxTimeout / time.Millisecond * time.Millisecond},
		{OwnTimeout, "9223372036854775808", ignored},
		{OwnTimeout, "1_000", ignored},
		{OwnTimeout, "", ignored},
		{OwnTimeout, "-", ignored},
		{OwnTimeout, "--1", ignored},
		{OwnTimeout, "+1", ignored},
		{OwnTimeout, "1.5", ignored},
		{OwnTimeout, "1ms", ignored},
		{OwnTimeout, "1, 2", ignored},
		{OwnTimeout, " 1", ignored},
		{OwnTimeout, "٣", ignored},
		{EnvoyTimeout, "15000", 15 * time.Second},
		{EnvoyTimeout, "0", ignored},
		{EnvoyTimeout, "-1", ignored},
		{GRPCTimeout, "1H", time.Hour},
		{GRPCTimeout, "2M", 2 * time.Minute},
		{GRPCTimeout, "3S", 3 * time.Second},
		{GRPCTimeout, "4m", 4 * time.Millisecond},
		{GRPCTimeout, "5u", 5 * time.Microsecond},
		{GRPCTimeout, "6n", 6},
		{GRPCTimeout, "0n", 0},
		{GRPCTimeout, "99999999H", MaxTimeout / time.Hour * time.Hour},
		{GRPCTimeout, "100000000n", ignored},
		{GRPCTimeout, "10", ignored},
		{GRPCTimeout, "S", ignored},
		{GRPCTimeout, "1s", ignored},
		{GRPCTimeout, "-1S", ignored},
		{GRPCTimeout, "1 S", ignored},
		{GRPCTimeout, "1SS", ignored},
	} {
		d, ok := ParseTimeout(c.f, []byte(c.value))
		if ok != (c.want != ignored) || d != max(c.want, 0) {
			t.Errorf("field %d, %q: %v, %v, want %v", c.f, c.value, d, ok, c.want)
		}
	}
}

// grammars are the values that mean a time, or that it is up.
var grammars = [...]*regexp.Regexp{
	OwnTimeout:   regexp.MustCompile(`^-?([0-9]+)$`),
	EnvoyTimeout: regexp.MustCompile(`^(0*[1-9][0-9]*)$`),
	GRPCTimeout:  regexp.MustCompile(`^([0-9]{1,8})([HMSmun])$`),
}

// FuzzTimeout compares ParseTimeout with the grammar, and with arithmetic that can't overflow. It
// checks that the values of appendTimeout are in the grammar, and never lengthen the time.
func FuzzTimeout(f *testing.F) {
	for _, seed := range []string{"", "0", "-7", "1500", "99999999S", "1H", "100000000m", "999999999999999999", "5x"} {
		f.Add(seed, int64(1_234_567_890))
		f.Add(seed, int64(100_000_000_001)) // just above a millisecond, and above the range of microseconds
		f.Add(seed, int64(math.MinInt64))
		f.Add(seed, int64(math.MaxInt64))
	}
	f.Fuzz(func(t *testing.T, value string, left int64) {
		for k := OwnTimeout; k <= GRPCTimeout; k++ {
			d, ok := ParseTimeout(k, []byte(value))
			parts := grammars[k].FindStringSubmatch(value)
			valid := parts != nil
			if valid {
				n, _ := new(big.Int).SetString(parts[1], 10)
				valid = n.IsInt64()
			}
			if ok != valid {
				t.Fatalf("field %d, %q: ok is %v", k, value, ok)
			}
			if ok && d != exactTimeout(k, value) {
				t.Errorf("field %d, %q: %v, want %v", k, value, d, exactTimeout(k, value))
			}
			said := appendTimeout(nil, k, time.Duration(left))
			back, ok := ParseTimeout(k, said)
			least := time.Millisecond
			if k == GRPCTimeout {
				least = time.Microsecond
			}
			if !ok || back >= max(time.Duration(left), least+1) || back < least {
				t.Errorf("field %d: %v is said as %q, which means %v, %v", k, time.Duration(left), said, back, ok)
			}
			if lost := min(max(0, time.Duration(left)), MaxTimeout) - back; lost > time.Millisecond && (k != GRPCTimeout || back < maxGRPC*time.Millisecond) {
				t.Errorf("field %d: %v is said as %q: %v is lost", k, time.Duration(left), said, lost)
			}
		}
	})
}

// exactTimeout returns what a valid value means.
func exactTimeout(f TimeoutField, value string) time.Duration {
	if value[0] == '-' {
		return 0
	}
	digits, unit := value, time.Millisecond
	if f == GRPCTimeout {
		last := len(value) - 1
		digits, unit = value[:last], map[byte]time.Duration{
			'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': 1,
		}[value[last]]
	}
	n, _ := new(big.Int).SetString(digits, 10)
	most := big.NewInt(int64(MaxTimeout / unit))
	if n.Cmp(most) > 0 {
		n = most
	}
	return time.Duration(n.Int64()) * unit
}

// TestTimeoutUnits: a header says the last whole unit before the time, and at least one.
func TestTimeoutUnits(t *testing.T) {
	const longestInU = (100_000_000 - 1) * time.Microsecond // grpc-timeout has eight digits
	const longestInM = (100_000_000 - 1) * time.Millisecond
	for _, c := range []struct {
		left      time.Duration
		own, grpc string
	}{
		{-1, "1", "1u"},
		{0, "1", "1u"},
		{1, "1", "1u"},
		{time.Microsecond, "1", "1u"},
		{2 * time.Microsecond, "1", "1u"},
		{2*time.Microsecond + 1, "1", "2u"},
		{2 * time.Millisecond, "1", "1999u"},
		{2*time.Millisecond + 1, "2", "2000u"},
		{longestInU, "99999", "99999998u"},
		{longestInU + 1, "99999", "99999m"},
		{100 * time.Second, "99999", "99999m"},
		{100*time.Second + 1, "100000", "100000m"},
		{longestInM + 1, "99999999", "99999999m"},
		{longestInM + 2*time.Millisecond, "100000000", "99999999m"},
	} {
		hs, _ := SetTimeLeft(lines("grpc-timeout: 99999999H"), c.left, nil)
		if got, want := joined(hs), "grpc-timeout: "+c.grpc+"|x-remora-timeout-ms: "+c.own; got != want {
			t.Errorf("%d ns: %s, want %s", c.left, got, want)
		}
	}
}

// TestSetTimeLeft checks that each header says the time left once, and never more than before.
func TestSetTimeLeft(t *testing.T) {
	for _, c := range []struct{ before, want string }{
		{"a: b", "a: b|x-remora-timeout-ms: 1500"},
		{"X-Remora-Timeout-Ms: 2000|a: b", "X-Remora-Timeout-Ms: 1500|a: b"},
		{"x-remora-timeout-ms: 1499", "x-remora-timeout-ms: 1499"},
		{"x-remora-timeout-ms: 2000|a: b|X-REMORA-TIMEOUT-MS: 3000", "x-remora-timeout-ms: 1500|a: b"},
		{"Grpc-Timeout: 2S|X-Envoy-Expected-Rq-Timeout-Ms: 1900|a: b|grpc-timeout: 1S",
			"Grpc-Timeout: 1500199u|X-Envoy-Expected-Rq-Timeout-Ms: 1500|a: b|x-remora-timeout-ms: 1500"},
		{"grpc-timeout: 1S|x-envoy-expected-rq-timeout-ms: 0", "grpc-timeout: 1S|x-envoy-expected-rq-timeout-ms: 1500|x-remora-timeout-ms: 1500"},
		{"grpc-timeout: 1500200u", "grpc-timeout: 1500199u|x-remora-timeout-ms: 1500"}, // just the time left
		{"grpc-timeout: soon", "grpc-timeout: 1500199u|x-remora-timeout-ms: 1500"},
	} {
		hs, text := SetTimeLeft(lines(c.before), 1500200*time.Microsecond, nil)
		if got := joined(hs); got != c.want {
			t.Errorf("%s becomes\n%s, want\n%s", c.before, got, c.want)
		}
		hs, _ = SetTimeLeft(hs, 200*time.Second, text)
		if got := joined(hs); got != c.want {
			t.Errorf("%s becomes longer:\n%s, want\n%s", c.before, got, c.want)
		}
	}
}

func lines(text string) (hs []Header) {
	for line := range strings.SplitSeq(text, "|") {
		name, value, _ := strings.Cut(line, ": ")
		hs = append(hs, Header{Name: []byte(name), Value: []byte(value)})
	}
	return hs
}

func joined(hs []Header) string {
	var all []string
	for _, h := range hs {
		all = append(all, string(h.Name)+": "+string(h.Value))
	}
	return strings.Join(all, "|")
}
