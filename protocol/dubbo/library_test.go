package dubbo

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	hessian "github.com/apache/dubbo-go-hessian2"
)

// These tests compare this package with dubbo-go-hessian2, in both directions.

// pojo is an object of the application.
type pojo struct {
	Name  string
	Count int64
	Next  *pojo
	Tags  []string
}

func (*pojo) JavaClassName() string { return "com.example.Pojo" }

func init() { hessian.RegisterPOJO(&pojo{}) }

// randomValue returns a value for dubbo-go-hessian2, and the same value as decoded by
// encoding/json.
func randomValue(r *rand.Rand, depth int) (value, inJSON any) {
	kind := r.IntN(12)
	if depth == 0 {
		kind = r.IntN(7)
	}
	switch kind {
	case 0:
		return nil, nil
	case 1:
		b := r.IntN(2) == 0
		return b, b
	case 2:
		n := int32(r.Uint32()) >> r.IntN(32)
		return n, float64(n)
	case 3:
		n := int64(r.Uint64()) >> (11 + r.IntN(53)) // what a float64 has room for
		return n, float64(n)
	case 4:
		f := math.Round(r.NormFloat64()*1000) / 8
		return f, f
	case 5:
		text := strings.Repeat(randomText(r), 1+r.IntN(3)*r.IntN(300))
		return text, text
	case 6:
		at := time.UnixMilli(r.Int64N(1 << 41))
		return at, float64(at.UnixMilli())
	case 7:
		var list []any
		want := []any{}
		for range 1 + r.IntN(12) {
			v, j := randomValue(r, depth-1)
			list, want = append(list, v), append(want, j)
		}
		return list, want
	case 8:
		m, want := map[any]any{}, map[string]any{}
		for i := range r.IntN(5) {
			v, j := randomValue(r, depth-1)
			key := fmt.Sprint(randomText(r), i)
			m[key], want[key] = v, j
		}
		return m, want
	case 9:
		return randomPojo(r, depth)
	case 10: // a repeated value: a reference
		v, j := randomPojo(r, depth)
		return []any{v, v, "between", v}, []any{j, j, "between", j}
	}
	n := int64(r.IntN(100))
	return []int64{n, n}, []any{float64(n), float64(n)}
}

func randomPojo(r *rand.Rand, depth int) (*pojo, any) {
	p := &pojo{Name: randomText(r), Count: int64(r.Int32()), Tags: []string{"a", randomText(r)}}
	want := map[string]any{"name": p.Name, "count": float64(p.Count), "next": nil, "tags": []any{"a", p.Tags[1]}}
	if depth > 0 && r.IntN(2) == 0 {
		p.Next, want["next"] = randomPojo(r, depth-1)
	}
	return p, want
}

func TestDecodeLibraryValues(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 1500 {
		value, want := randomValue(r, 4)
		e := hessian.NewEncoder()
		if err := e.Encode(value); err != nil {
			t.Fatal(err)
		}
		b := e.Buffer()
		skipping := hessianReader{b: b}
		if skipping.skip(); skipping.bad || skipping.i != len(b) {
			t.Fatalf("%d: skipped %d of %d bytes, %v, of %v", i, skipping.i, len(b), skipping.bad, value)
		}
		text, tr := toJSON(b, 1<<20)
		var got any
		if err := json.Unmarshal([]byte(text), &got); err != nil || tr.r.i != len(b) || !reflect.DeepEqual(got, want) {
			t.Fatalf("%d: %v: got %s, %v", i, value, text, err)
		}
	}
}

// TestLibraryDecodes encodes JSON and checks the values that the library decodes.
func TestLibraryDecodes(t *testing.T) {
	ints := []any{}
	for shift := range 64 {
		for _, d := range []int64{-1, 0, 1} {
			n := int64(1)<<shift + d
			ints = append(ints, n, -n)
		}
	}
	for _, v := range append(ints, nil, true, false, 1.5, 0.1, -1e300, "", "a", strings.Repeat("x", 31), strings.Repeat("x", 32),
		strings.Repeat("é", 1023), strings.Repeat("x", 1024), strings.Repeat("€", maxChunk), strings.Repeat("y", maxChunk+1),
		strings.Repeat("z", maxChunk-1)+"😀"+strings.Repeat("😀", maxChunk), strings.Repeat("long", 1<<18), "\"\\\n\x00\u2028",
		[]any{}, []any{"a", int64(1), nil, []any{true}}, map[string]any{}, map[string]any{"a\n": map[string]any{"é": []any{1.5}}},
	) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		e := hessianEncoder{}
		e.value(&jsonReader{b: text})
		got, err := hessian.NewDecoder(e.dst).Decode()
		if err != nil || !reflect.DeepEqual(plain(got), v) || e.bad {
			t.Errorf("%.60s: got %.60v, %v", text, got, err)
		}
		r := hessianReader{b: e.dst}
		if r.skip(); r.bad || r.i != len(e.dst) {
			t.Errorf("%.60s: skipped %d of %d bytes", text, r.i, len(e.dst))
		}
	}
}

// plain converts a value decoded by the library to the types of encoding/json.
func plain(v any) any {
	switch v := v.(type) {
	case int32:
		return int64(v)
	case []any:
		list := []any{}
		for _, e := range v {
			list = append(list, plain(e))
		}
		return list
	case map[any]any:
		m := map[string]any{}
		for k, e := range v {
			m[k.(string)] = plain(e)
		}
		return m
	}
	return v
}

// TestLibraryIntegers compares the encodings of ints and longs.
func TestLibraryIntegers(t *testing.T) {
	for _, n := range []int64{
		0, -8, -9, 15, 16, -16, -17, 47, 48, -2048, -2049, 2047, 2048, -262144, -262145, 262143, 262144,
		math.MinInt32, math.MaxInt32, math.MinInt32 - 1, math.MaxInt32 + 1, math.MinInt64, math.MaxInt64,
	} {
		e := hessian.NewEncoder()
		if err := e.Encode(n); err != nil {
			t.Fatal(err)
		}
		if got, want := appendHessianLong(nil, n), e.Buffer(); string(got) != string(want) {
			t.Errorf("long %d: got %x, want %x", n, got, want)
		}
		if n < math.MinInt32 || n > math.MaxInt32 {
			continue
		}
		e = hessian.NewEncoder()
		if err := e.Encode(int32(n)); err != nil {
			t.Fatal(err)
		}
		if got, want := appendHessianInt(nil, int32(n)), e.Buffer(); string(got) != string(want) {
			t.Errorf("int %d: got %x, want %x", n, got, want)
		}
	}
}

func TestLibraryBinary(t *testing.T) {
	for _, n := range []int{0, 1, maxChunk, maxChunk + 1, 3 * maxChunk, 1 << 20} {
		want := bytes.Repeat([]byte("b"), n)
		b := appendHessianBinary(nil, want)
		got, err := hessian.NewDecoder(b).Decode()
		if err != nil || !bytes.Equal(got.([]byte), want) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if text, tr := toJSON(b, 1<<21); tr.r.bad || text != `"`+base64.StdEncoding.EncodeToString(want)+`"` {
			t.Errorf("%d bytes: got %.60s", n, text)
		}
	}
}
