package feature

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lab/wire"
)

// TestKeysFollowZipf compares how often cells are drawn with Zipf's law.
func TestKeysFollowZipf(t *testing.T) {
	const n = 200_000
	var drawn [Grids]float64
	keys, again, other := NewKeys(1), NewKeys(1), NewKeys(2)
	differ := 0
	for range n {
		r := keys.Next(7)
		if again.Next(7) != r || r.Minute != 7 {
			t.Fatalf("%+v: one seed, other draws", r)
		}
		if other.Next(7) != r {
			differ++
		}
		drawn[r.Grid]++
	}
	if differ < n/2 {
		t.Errorf("two seeds differ in %d of %d draws", differ, n)
	}
	sum := 0.0
	for i := range Grids {
		sum += math.Pow(float64(i+1), -skew)
	}
	for _, grid := range []int{0, 1, 9, 99, Grids - 1} {
		want := n * math.Pow(float64(grid+1), -skew) / sum
		if got := drawn[grid]; math.Abs(got-want) > 5*math.Sqrt(want) {
			t.Errorf("cell %d was drawn %v times, want %.0f", grid, got, want)
		}
	}
}

// TestBatches checks the sizes, and that large ones are as rare as their cells.
func TestBatches(t *testing.T) {
	if least, most := slices.Min(batches[:]), slices.Max(batches[:]); least != MinKeys || most != MaxKeys {
		t.Errorf("batches of %d to %d keys, want %d to %d", least, most, MinKeys, MaxKeys)
	}
	const n = 100_000
	large, huge := 0, 0
	keys := NewKeys(1)
	for range n {
		r := keys.Next(0)
		if r.Keys() > 100 {
			large++
		}
		if r.Keys() > 1000 {
			huge++
		}
	}
	if large < n*5/100 || large > n*15/100 || huge == 0 || huge > n*15/1000 {
		t.Errorf("of %d requests %d have more than 100 keys, and %d more than 1,000", n, large, huge)
	}
}

func TestKeyIsParsed(t *testing.T) {
	r := Request{"speed", 17, 3_000_001}
	if got, err := ParseKey(r.Key()); err != nil || got != r {
		t.Errorf("%q: %+v, %v", r.Key(), got, err)
	}
	for _, bad := range []string{"", "speed", "speed/g1", "speed/g1/m", "speed/1/m1", "speed/gx/m1", "speed/g-1/m1", "speed/g200/m1", "speed/g1/m1/x"} {
		if r, err := ParseKey(bad); err == nil {
			t.Errorf("%q was parsed as %+v", bad, r)
		}
	}
	if a, b := r.AppendKey(nil, 1), r.AppendKey(nil, 12); string(a) != "speed-1/g17/m3000001" || string(b) != "speed-12/g17/m3000001" {
		t.Errorf("keys %s and %s", a, b)
	}
	var m wire.Message
	m.Reset()
	request := r.AppendHTTP([]byte("GET /compute HTTP/1.1\r\nhost: x\r\n"))
	if n, err := m.ParseRequest(request); err != nil || n != len(request) || string(m.Key) != r.Key() {
		t.Errorf("%q: %d, %v", request, n, err)
	}
	if !strings.Contains(string(request), "\r\nx-remora-class: keys-2\r\n") {
		t.Errorf("%q for %d keys", request, r.Keys())
	}
}

func TestWindow(t *testing.T) {
	for at, want := range map[time.Duration]bool{-1: false, 0: true, 9999 * time.Millisecond: true, 10 * time.Second: false,
		59 * time.Second: false, 60 * time.Second: true, 70 * time.Second: false} {
		if got := InWindow(at, time.Minute); got != want {
			t.Errorf("after %v: %v", at, got)
		}
	}
}
