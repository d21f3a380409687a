package dubbo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	hessian "github.com/apache/dubbo-go-hessian2"
)

// FuzzHessianVsLibrary compares the hessian2 reader with dubbo-go-hessian2. Known
// harmless differences have a comment where they are allowed.
func FuzzHessianVsLibrary(f *testing.F) {
	for _, c := range hessianValues {
		f.Add(unhexed(f, c.wire))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := hessianReader{b: b}
		if r.skip(); r.bad {
			return
		}
		text, tr := toJSON(b[:r.i], 1<<16)
		if tr.r.bad { // a reference to nothing
			return
		}
		if strings.Contains(text, `"$ref"`) {
			return // what contains itself
		}
		if bytes.IndexByte(b[:r.i], 0x5f) >= 0 {
			return // thousandths: the library divides by 1000, and Java multiplies by 0.001
		}
		if strings.ContainsRune(text, utf8.RuneError) || strings.Contains(text, objectClass) {
			return // half a surrogate pair, which the library keeps
		}
		theirs, err := libraryDecode(b[:r.i])
		if err != nil {
			return // the library knows only registered classes, and fewer forms
		}
		want, ok := jsonOf(reflect.ValueOf(theirs))
		if !ok {
			return
		}
		got := parsedJSON(t, text)
		if bytes.IndexByte(b[:r.i], 'M') >= 0 { // a map with a type: the library drops null values
			got, want = withoutNulls(got), withoutNulls(want)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%x: got %s, the library has %#v", b[:r.i], text, theirs)
		}
	})
}

// withoutNulls removes null values from maps.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			withoutNulls(e)
		}
	case map[string]any:
		for k, e := range v {
			if withoutNulls(e); e == nil {
				delete(v, k)
			}
		}
	}
	return v
}

// FuzzHessianEncode encodes JSON as hessian2. The library and the reader of this package
// must decode it to the same JSON.
func FuzzHessianEncode(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, ok := oneJSON(text)
		if !ok || !utf8.Valid(text) { // Call.Parse refuses such text
			return
		}
		e := hessianEncoder{}
		e.value(&jsonReader{b: value})
		if e.bad {
			return // a number that no Java type holds
		}
		want := parsedJSON(t, string(text))
		back, tr := toJSON(e.dst, math.MaxInt)
		if tr.r.bad || tr.r.i != len(e.dst) {
			t.Fatalf("%q: %x, read up to %d", text, e.dst, tr.r.i)
		}
		if got := parsedJSON(t, back); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q came back as %q", text, back)
		}
		theirs, err := libraryDecode(e.dst)
		if err != nil {
			t.Fatalf("%q: %x: the library refuses it: %v", text, e.dst, err)
		}
		if got, ok := jsonOf(reflect.ValueOf(theirs)); ok && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %x: the library has %#v", text, e.dst, theirs)
		}
	})
}

// objectClass is the key that the library adds to objects of unknown classes.
const objectClass = "_class"

// libraryDecode returns the result of the library's Decode, with panics as errors.
func libraryDecode(b []byte) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	d := hessian.NewDecoder(b)
	if v, err = d.Decode(); err == nil && d.Buffered() > 0 {
		err = errors.New("trailing bytes")
	}
	return v, err
}

// parsedJSON returns text in the form of jsonOf: numbers with a fraction or an exponent
// as float64, and others as int64.
func parsedJSON(t *testing.T, text string) any {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return numbersParsed(v)
}

func numbersParsed(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n
		}
		x, _ := v.Float64()
		return x
	case []any:
		for i := range v {
			v[i] = numbersParsed(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbersParsed(v[k])
		}
	}
	return v
}

// jsonOf returns a value decoded by the library as the JSON that AppendReply writes for
// it. ok is false for values that the library decodes to several forms.
func jsonOf(v reflect.Value) (any, bool) {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if !v.IsValid() {
		return nil, true
	}
	switch x := v.Interface().(type) {
	case time.Time:
		return x.UnixMilli(), true
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, true
		}
		return x, true
	case []byte:
		return nil, false
	}
	switch v.Kind() {
	case reflect.Bool:
		return v.Bool(), true
	case reflect.String:
		return v.String(), true
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		return v.Int(), true
	case reflect.Slice:
		return jsonOfList(v)
	case reflect.Map:
		return jsonOfMap(v)
	}
	return nil, false
}

func jsonOfList(v reflect.Value) (any, bool) {
	if v.Type().Elem().Kind() != reflect.Interface {
		return nil, false // a list with a type: the library converts the elements
	}
	list := []any{}
	for i := range v.Len() {
		e, ok := jsonOf(v.Index(i))
		if !ok {
			return nil, false
		}
		list = append(list, e)
	}
	return list, true
}

func jsonOfMap(v reflect.Value) (any, bool) {
	m := map[string]any{}
	for _, key := range v.MapKeys() {
		k, okKey := jsonOf(key)
		e, ok := jsonOf(v.MapIndex(key))
		name, isString := k.(string)
		if !okKey || !ok || !isString {
			return nil, false
		}
		m[name] = e
	}
	delete(m, objectClass)
	return m, true
}
