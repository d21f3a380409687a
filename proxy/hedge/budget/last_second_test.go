package budget

import (
	"math"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestLastSecond(t *testing.T) {
	var in lastSecond
	for at := time.Duration(0); at < 10*time.Second; at += 10 * ms {
		in.add(at, 1)
		if at < time.Second {
			continue
		}
		if got := in.perSecond(at); math.Abs(got-100) > 2 {
			t.Fatalf("at %v: %v a second, want 100", at, got)
		}
	}
	before := in
	for _, c := range []struct {
		at   time.Duration
		want float64
	}{{10500 * ms, 50}, {10999 * ms, 0}, {11 * time.Second, 0}, {time.Hour, 0}} {
		if got := in.perSecond(c.at); math.Abs(got-c.want) > 1 {
			t.Errorf("at %v: %v a second, want %v", c.at, got, c.want)
		}
	}
	if in != before {
		t.Error("reading changed it")
	}
}
