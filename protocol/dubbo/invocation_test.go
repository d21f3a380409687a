package dubbo

import (
	"slices"
	"strings"
	"testing"
	"time"

	hessian "github.com/apache/dubbo-go-hessian2"
)

// fastjsonBody returns the body of a call with these lines.
func fastjsonBody(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

func TestFastjsonInvocation(t *testing.T) {
	// after returns the body of a call to method m of a.B, version 1.0, with these lines
	// after its method.
	after := func(lines ...string) string {
		return fastjsonBody(append([]string{`"2.6.1"`, `"a.B"`, `"1.0"`, `"m"`}, lines...)...)
	}
	simple := Invocation{DubboVersion: []byte("2.6.1"), Path: []byte("a.B"), Version: []byte("1.0"), Method: []byte("m")}
	traced := simple
	traced.TraceParent = []byte("00-1")
	typed := simple
	typed.Types, typed.Group, typed.Timeout = []byte("[[ILa/B;"), []byte("last"), 1500*time.Millisecond
	for _, c := range []struct {
		body string
		want Invocation
	}{
		{after(`""`, `{}`), simple},
		{fastjsonBody(`null`, `"a.B"`, `null`, `"m"`, `null`, `null`), Invocation{Path: []byte("a.B"), Method: []byte("m")}},
		{strings.ReplaceAll(fastjsonBody(`""`, `"a.B"`, `"0.0.0"`, `"é"`, `"IJ"`, `1`, `2`, `{"group":"g"}`), "\n", "\r\n"),
			Invocation{Path: []byte("a.B"), Method: []byte("é"), Types: []byte("IJ"), Group: []byte("g")}},
		{after(`"[[ILa/B;"`, `[[1]]`, `{"group":"no"}`, `{"timeout":"1500","group":"g","x":{"group":"no"},"group":"last"}`), typed},
		{after(`""`, `{"path":"p","version":null,"group":null,"timeout":20, "x":"\n"}`),
			Invocation{DubboVersion: []byte("2.6.1"), Path: []byte("p"), Method: []byte("m"), Timeout: 20 * time.Millisecond}},
		{after(`""`, `{"traceparent":"00-1"}`), traced},
		{after(`""`, `{"timeout":"soon"}`), simple},
		{after(`""`, `{"timeout":"-1"}`), simple},
		{after(`""`, `{"timeout":"9223372036854775808"}`), simple}, // overflows as a number
		{after(`""`, `{"timeout":"999999999999999999"}`), simple},  // overflows as nanoseconds
	} {
		inv := Invocation{Group: []byte("left over"), Timeout: 1}
		if err := inv.Parse(Fastjson, []byte(c.body)); err != nil || show(&inv) != show(&c.want) {
			t.Errorf("%q:\ngot  %s, %v\nwant %s", c.body, show(&inv), err, show(&c.want))
		}
		for i := range c.body {
			if err := inv.Parse(Fastjson, []byte(c.body[:i])); err != ErrBadInvocation {
				t.Errorf("%q: %v", c.body[:i], err)
			}
		}
	}
}

func TestFastjsonInvocationRefused(t *testing.T) {
	// calls returns the body of a call to method m of a.B with these lines after its method.
	calls := func(lines ...string) string {
		return fastjsonBody(append([]string{`"2.6.1"`, `"a.B"`, `null`, `"m"`}, lines...)...)
	}
	arguments := func(n int) string {
		return calls(append(append([]string{`"` + strings.Repeat("I", n) + `"`}, slices.Repeat([]string{"1"}, n)...), `{}`)...)
	}
	for body, why := range map[string]string{
		fastjsonBody(`"2.6.1"`, `null`, `null`, `"m"`, `""`, `{}`):         "no path",
		fastjsonBody(`"2.6.1"`, `""`, `null`, `"m"`, `""`, `{}`):           "empty path",
		fastjsonBody(`"2.6.1"`, `"a.B"`, `null`, `null`, `""`, `{}`):       "no method",
		fastjsonBody(`"2.6.1"`, `"a\u002eB"`, `null`, `"m"`, `""`, `{}`):   "escape in the path",
		fastjsonBody(`"2.6.1"`, `"a"B"`, `null`, `"m"`, `""`, `{}`):        "quote in the path",
		fastjsonBody(`"2.6.1"`, `"a.B" `, `null`, `"m"`, `""`, `{}`) + "x": "bytes after the end",
		fastjsonBody(`2`, `"a.B"`, `null`, `"m"`, `""`, `{}`):              "Dubbo version that is no string",
		calls(`"X"`, `{}`):                "unknown type",
		calls(`"I"`, `{}`):                "no argument",
		calls(`"I"`, ``, `{}`):            "empty line for an argument",
		calls(`"I"`, "1\r2", `{}`):        "two lines to Java",
		calls(`""`, `[]`):                 "attachments that are no object",
		calls(`""`, `{"group":1}`):        "group that is no string",
		calls(`""`, `{"group":"\u0067"}`): "escape in the group",
		calls(`""`, `{"gr\u006fup":"g"}`): "escape in the name group",
		calls(`""`, `{"\u0067roup":"g"}`): "escape at the start of the name group",
		calls(`""`, `{"path":null}`):      "attachment path without a value",
		calls(`""`, `{"a":1}}`):           "bytes after the attachments",
		arguments(256):                    "too many arguments",
	} {
		var inv Invocation
		if err := inv.Parse(Fastjson, []byte(body)); err != ErrBadInvocation {
			t.Errorf("%s: got %v, %s", why, err, show(&inv))
		}
	}
	var inv Invocation
	most := arguments(255)
	if err := inv.Parse(Fastjson, []byte(most)); err != nil {
		t.Errorf("255 arguments: %v", err)
	}
	for _, serialization := range []byte{0, 1, 3, 21, 31} {
		if err := inv.Parse(serialization, []byte(most)); err != ErrSerialization {
			t.Errorf("serialization %d: %v", serialization, err)
		}
	}
}

// libraryCall returns the body of a call encoded by dubbo-go-hessian2.
func libraryCall(t testing.TB, service hessian.Service, args []any, attachments map[string]string) []byte {
	t.Helper()
	codec := hessian.NewHessianCodec(nil)
	b, err := codec.Write(service, hessian.DubboHeader{SerialID: Hessian2, Type: hessian.PackageRequest_TwoWay, ID: 1},
		hessian.NewRequest(args, attachments))
	if err != nil {
		t.Fatal(err)
	}
	f, n, err := Decode(b, len(b))
	if err != nil || n != len(b) || f.Serialization != Hessian2 || f.ID != 1 {
		t.Fatalf("%d of %d bytes, %+v, %v", n, len(b), f, err)
	}
	return f.Body
}

func TestHessianInvocation(t *testing.T) {
	p := &pojo{Name: "é😀", Next: &pojo{Tags: []string{"x"}}}
	args := []any{
		"text", int32(1), int64(2), 1.5, true, nil, []byte{1, 2}, []any{"a", int64(1)}, map[any]any{"k": []any{p}}, p, p,
		time.UnixMilli(5), []string{"a"}, strings.Repeat("long", 100_000),
	}
	body := libraryCall(t, hessian.Service{
		Path: "a.B", Interface: "a.I", Group: "g", Version: "1.0", Method: "m", Timeout: 3 * time.Second,
	}, args, map[string]string{"trace": "x"})
	var inv Invocation
	err := inv.Parse(Hessian2, body)
	want := `dubbo "2.0.2" path "a.B" version "1.0" method "m" types "` +
		`Ljava/lang/String;IJDZV[B[Ljava/lang/Object;Ljava/util/Map;Lcom/example/Pojo;Lcom/example/Pojo;Ljava/util/Date;[Ljava/lang/String;` +
		`Ljava/lang/String;" group "g" timeout 3s`
	got := strings.ReplaceAll(show(&inv), "Ljava/util/List;", "[Ljava/lang/Object;")
	if err != nil || got != want {
		t.Errorf("%v, got\n%s, want\n%s", err, got, want)
	}
	for _, cut := range []int{1, 2, 10, 100, 1000, 100_000} {
		if err := inv.Parse(Hessian2, body[:len(body)-cut]); err != ErrBadInvocation {
			t.Errorf("without the last %d bytes: %v", cut, err)
		}
	}
	short := libraryCall(t, hessian.Service{Path: "a.B", Method: "m"}, args[:1], nil)
	for i := range short {
		if err := inv.Parse(Hessian2, short[:i]); err != ErrBadInvocation {
			t.Errorf("the first %d bytes: %v", i, err)
		}
	}
	if err := inv.Parse(Hessian2, append(short, 'N')); err != ErrBadInvocation {
		t.Errorf("trailing bytes: %v", err)
	}
}

func TestHessianAttachments(t *testing.T) {
	const head = "\x052.0.2\x03a.B\x031.0\x01m\x00"
	for _, c := range []struct{ attachments, want string }{
		{"N", `path "a.B" version "1.0" method "m" types "" group "" timeout 0s`},
		{"HZ", `path "a.B" version "1.0" method "m" types "" group "" timeout 0s`},
		{"M\x11java.util.HashMap\x04path\x01p\x07versionN\x05group\x01gZ", `path "p" version "" method "m" types "" group "g" timeout 0s`},
		{"H\x07version\x050.0.0\x07timeout\xcb\xe8\x01x\x79\x90\x90\x90Z", `path "a.B" version "" method "m" types "" group "" timeout 1s`},
		{"H\x07timeout\xfb\xe8\x05group\x00Z", `path "a.B" version "1.0" method "m" types "" group "" timeout 1s`},
		{"H\x05group\x01gNNH\x05group\x01n\x5aNZ", `path "a.B" version "1.0" method "m" types "" group "g" timeout 0s`},
		{"H\x0btraceparent\x0400-1Z", `path "a.B" version "1.0" method "m" types "" group "" timeout 0s trace "00-1"`},
		{"H\x05group\x90Z", ""},
		{"H\x05groupR\x00\x01a\x01bZ", ""},
		{"HR\x00\x02gr\x03oup\x01gZ", ""},
		{"H\x04pathNZ", ""},
		{"x", ""},
		{"T", ""},
		{"\x79\x90", ""},
		{"HZ\x90", ""},
	} {
		var inv Invocation
		err := inv.Parse(Hessian2, []byte(head+c.attachments))
		if c.want == "" {
			if err != ErrBadInvocation {
				t.Errorf("%q: %v", c.attachments, err)
			}
		} else if got := show(&inv); err != nil || got != `dubbo "2.0.2" `+c.want {
			t.Errorf("%q: got %s, %v", c.attachments, got, err)
		}
	}
}

func TestDescriptors(t *testing.T) {
	for _, c := range []struct {
		types string
		want  int // -1: refused
	}{
		{"", 0}, {"I", 1}, {"BCDFIJSZ", 8}, {"[I", 1}, {"[[[J[Z", 2}, {"La;", 1}, {"Ljava/lang/String;I[Ljava/util/Map$Entry;", 3},
		{"Lé/Ü;", 1}, {"[", -1}, {"I[", -1}, {"V", 1}, {"v", -1}, {"L;", -1}, {"La", -1}, {"L", -1}, {"La.b;", -1}, {"L a;", -1}, {"L[I;", -1},
		{"La\n;", -1}, {"La\";", -1}, {"L\xff;", -1}, {";", -1}, {"I,I", -1}, {"java.lang.String", -1},
	} {
		n, ok := countTypes([]byte(c.types))
		if ok != (c.want >= 0) || ok && n != c.want {
			t.Errorf("%q: got %d, %v", c.types, n, ok)
		}
	}
}

// TestHessianNameInLongForm: a name with a character in a longer form than the shortest, which only the provider would read as the
// name of a group, is refused, and so are such values.
func TestHessianNameInLongForm(t *testing.T) {
	for _, attachment := range []string{"\x05\xc1\xa7roup\x01b", "\x05\xe0\x81\xa7roup\x01b", "\x05group\x01\xc1\xa2"} {
		var inv Invocation
		body := "\x052.0.2\x03a.B\x050.0.0\x01m\x00H" + attachment + "Z"
		if err := inv.Parse(Hessian2, []byte(body)); err != ErrBadInvocation {
			t.Errorf("%q: %v, group %q", attachment, err, inv.Group)
		}
	}
}
