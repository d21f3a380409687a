package dubbo

import (
	"encoding/json"
	"math/big"
	"net/url"
	"strings"
	"testing"

	hessian "github.com/apache/dubbo-go-hessian2"
	"github.com/remora-proxy/remora/protocol"
)

// lines returns the lines of the call in fastjson.
func lines(t testing.TB, c *Call) []string {
	t.Helper()
	body := string(frameOf(t, c, Fastjson).Body)
	return strings.Split(strings.TrimSuffix(body, "\n"), "\n")
}

// arguments returns the lines of the call's arguments in fastjson.
func arguments(t testing.TB, c *Call) string {
	t.Helper()
	all := lines(t, c)
	return strings.Join(all[5:len(all)-1], "\n")
}

// decodedArguments returns the call's hessian2 arguments, decoded by the library, as
// JSON.
func decodedArguments(t testing.TB, c *Call) string {
	t.Helper()
	d := hessian.NewDecoder(frameOf(t, c, Hessian2).Body)
	var values []string
	for i := range 5 + len(c.args) {
		v, err := d.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if i >= 5 {
			text, err := json.Marshal(plain(v))
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, string(text))
		}
	}
	return strings.Join(values, "\n")
}

func TestFormCall(t *testing.T) {
	for _, c := range []struct{ form, fastjson, hessian string }{
		{"interface=a.B&method=m&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=", `""`, `""`},
		{"parameter=1&parameterTypesString=ILjava/lang/String;&method=m&parameter=2&interface=a.B", "1\n\"2\"", "1\n\"2\""},
		{"interface=a.B&method=m", "", ""},
		{"interface=a.B&method=m&parameterTypesString=&unknown=x", "", ""},
		{"%69nterface=a%2eB&m%65thod=m&parameterTypesString=Ljava/lang/String;&parameter=a+%2B%C3%a9%22%5c%0A%f0%9f%98%80%00=",
			`"a +é\"\\\n😀\u0000="`, `"a +é\"\\\n😀\u0000="`},
		{"interface=a.B&method=m&parameterTypesString=ZCDJLjava/lang/Integer;&parameter=true&parameter=%C3%A9&parameter=-1.5e3&parameter=9223372036854775807&parameter=null",
			"true\n\"é\"\n-1.5e3\n9223372036854775807\nnull", "true\n\"é\"\n-1500\n9223372036854775807\nnull"},
		{"interface=a.B&method=m&parameterTypesString=Ljava/util/List;[ILa/B;Ljava/lang/String;&parameter=[1,+\"a+b\",+null]&parameter=%5B1%5D&parameter={\"k\":%0A{}}&parameter=[1,+2]",
			"[1,\"a b\",null]\n[1]\n{\"k\":{}}\n\"[1, 2]\"", "[1,\"a b\",null]\n[1]\n{\"k\":{}}\n\"[1, 2]\""},
	} {
		call := parsedForm(t, c.form)
		if got := arguments(t, call); got != c.fastjson {
			t.Errorf("%s: got %s in fastjson", c.form, got)
		}
		if got := decodedArguments(t, call); got != c.hessian {
			t.Errorf("%s: got %s in hessian2", c.form, got)
		}
		if string(call.Interface) != "a.B" || string(call.Method) != "m" || !call.Bare {
			t.Errorf("%s: got %+v", c.form, call)
		}
	}
}

// TestFormCallTexts encodes texts of all kinds and lengths, and decodes them again.
func TestFormCallTexts(t *testing.T) {
	var c Call
	for _, text := range []string{
		"", " ", "a", strings.Repeat("x", 1023), strings.Repeat("é%&=+\"", 1000), strings.Repeat("m", 1<<20), strings.Repeat("😀\n", 1<<17), "null", "1", "[]",
	} {
		values := url.Values{"interface": {"a.B"}, "method": {"m"}, "parameterTypesString": {"Ljava/lang/String;"}, "parameter": {text}}
		if err := c.Parse(form(values.Encode())); err != nil {
			t.Fatal(err)
		}
		for _, decode := range []func(testing.TB, *Call) string{arguments, decodedArguments} {
			var got string
			if err := json.Unmarshal([]byte(decode(t, &c)), &got); err != nil || got != text {
				t.Errorf("%.60q: got %.60q, %v", text, got, err)
			}
		}
		if cap(c.scratch) > maxScratch {
			c.reset()
			if c.scratch != nil {
				t.Errorf("%d bytes are kept", cap(c.scratch))
			}
		}
	}
}

func TestFormCallRefused(t *testing.T) {
	const good = "interface=a.B&method=m&parameterTypesString="
	for _, c := range []struct {
		form string
		want error
	}{
		{"", ErrBadName},
		{"method=m", ErrBadName},
		{"interface=a.B", ErrBadName},
		{"interface=&method=m", ErrBadName},
		{"interface=a.B&method=%ff", ErrBadName},
		{"interface=a.B&method=m&interface=a.C", ErrBadForm},
		{"interface=a.B&method=m&method=m", ErrBadForm},
		{"interface=a.B&method=m&group=&group=g", ErrBadForm},
		{"interface=a.B&method", ErrBadForm},
		{"interface=a.B&&method=m", ErrBadForm},
		{"interface=a.B&method=%", ErrBadForm},
		{"interface=a.B&method=%4", ErrBadForm},
		{"interface=a.B&method=%4g", ErrBadForm},
		{"interface=a.B&method=%u0041", ErrBadForm},
		{"interface=a.B&method=m&%zz=1", ErrBadForm},
		{good + "Ljava/lang/String;&parameter=%ff", ErrBadForm},
		{good + "Ljava/lang/String;&parameter=\xc3", ErrBadForm},
		{good + "X&parameter=1", ErrBadTypes},
		{good + "java.lang.String&parameter=1", ErrBadTypes},
		{good + "I", ErrArguments},
		{good + "&parameter=", ErrArguments},
		{good + "I&parameter=1&parameter=1", ErrArguments},
		{good + strings.Repeat("I", 256) + strings.Repeat("&parameter=1", 255), ErrBadTypes},
		{good + strings.Repeat("I", 255) + strings.Repeat("&parameter=1", 256), ErrBadForm},
		{good + "I&parameter=", ErrBadArgument},
		{good + "I&parameter=null", ErrBadArgument},
		{good + "I&parameter=1.0", ErrBadArgument},
		{good + "I&parameter=2147483648", ErrBadArgument},
		{good + "S&parameter=32768", ErrBadArgument},
		{good + "B&parameter=-129", ErrBadArgument},
		{good + "J&parameter=9223372036854775808", ErrBadArgument},
		{good + "I&parameter=%221%22", ErrBadArgument},
		{good + "D&parameter=NaN", ErrBadArgument},
		{good + "D&parameter=true", ErrBadArgument},
		{good + "Z&parameter=True", ErrBadArgument},
		{good + "Z&parameter=1", ErrBadArgument},
		{good + "C&parameter=", ErrBadArgument},
		{good + "C&parameter=ab", ErrBadArgument},
		{good + "C&parameter=%F0%9F%98%80", ErrBadArgument},
		{good + "Ljava/util/List;&parameter=[1", ErrBadArgument},
		{good + "[I&parameter=" + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), ErrBadArgument},
		{good + "La/B;&parameter=", ErrBadArgument},
		{good + "Ljava/util/Date;&parameter=%22today%22", ErrBadArgument},
		{good + "Ljava/math/BigInteger;&parameter=1.5", ErrBadArgument},
		{good + "Ljava/math/BigDecimal;&parameter=%221%22", ErrBadArgument},
		{good + "[B&parameter=[1]", ErrBadArgument},
		{good + "[B&parameter=%22*%22", ErrBadArgument},
	} {
		var call Call
		if err := call.Parse(form(c.form)); err != c.want {
			t.Errorf("%.100s: got %v, want %v", c.form, err, c.want)
		}
	}
}

func TestGroupVersionAttachments(t *testing.T) {
	headers := []protocol.Header{
		header("Dubbo-Attachments", ",Tag=a%20b, k%3D=%C3%A9%22 ,,e=, "), header("dubbo-attachments", "n=1"),
		header("traceparent", "00-1"), header("x-other", "no"),
	}
	for _, req := range []*protocol.Request{
		form("interface=a.B&method=m&version=1.0&group=g%22", headers...),
		jsonCall("/a.B/m?group=g%22&version=1.0&x=y", `{"args":[]}`, headers...),
	} {
		c := parsed(t, req)
		all := lines(t, c)
		const attachments = `{"path":"a.B","group":"g\"","Tag":"a b","k=":"é\"","e":"","n":"1","traceparent":"00-1"}`
		if all[2] != `"1.0"` || all[len(all)-1] != attachments {
			t.Errorf("got %s", all)
		}
		var inv Invocation
		if err := inv.Parse(Hessian2, frameOf(t, c, Hessian2).Body); err != nil || string(inv.Version) != "1.0" || string(inv.Group) != `g"` {
			t.Errorf("%v, %s", err, show(&inv))
		}
		d := hessian.NewDecoder(frameOf(t, c, Hessian2).Body)
		var got any
		for range 6 {
			got, _ = d.Decode()
		}
		text, err := json.Marshal(plain(got))
		const sorted = `{"Tag":"a b","e":"","group":"g\"","k=":"é\"","n":"1","path":"a.B","traceparent":"00-1"}`
		if err != nil || string(text) != sorted {
			t.Errorf("got %s, %v", text, err)
		}
	}
	var most Call
	if err := most.Parse(form("interface=a.B&method=m", header("dubbo-attachments", strings.Repeat("a=b,", maxAttachments)))); err != nil {
		t.Errorf("%d attachments: %v", maxAttachments, err)
	}
	for _, list := range []string{"a", "=b", "a=%", "path=x", "p%61th=x", "group=g", "version=1", "a=%ff", "%ff=a", strings.Repeat("a=b,", 64) + "a=b"} {
		var c Call
		if err := c.Parse(form("interface=a.B&method=m", header("dubbo-attachments", list))); err != ErrBadAttachment {
			t.Errorf("%s: %v", list, err)
		}
	}
}

func TestJSONCall(t *testing.T) {
	for _, c := range []struct{ path, body, types, fastjson, hessian string }{
		{"/a.B/m", `{"args":["x"]}`, "Ljava/lang/String;", `"x"`, `"x"`},
		{"/a.B/m", `{}`, "", "", ""},
		{"/a%2EB/%6d?", "\n{ \"args\" : [ ] }\n", "", "", ""},
		{"/a.B/m", `{"args":[1,2147483648,-2147483648,1.5,1e2,true,null,[1, {"a" : [ ]}],{"k":"v w"},"\u00e9\ud83d\ude00\/"]}`,
			"IJIDDZLjava/lang/String;Ljava/util/List;Ljava/util/Map;Ljava/lang/String;",
			"1\n2147483648\n-2147483648\n1.5\n1e2\ntrue\nnull\n[1,{\"a\":[]}]\n{\"k\":\"v w\"}\n\"\\u00e9\\ud83d\\ude00\\/\"",
			"1\n2147483648\n-2147483648\n1.5\n100\ntrue\nnull\n[1,{\"a\":[]}]\n{\"k\":\"v w\"}\n\"é😀/\""},
		{"/a.B/m", `{"types":["int","long[]","java.lang.String","Ljava/lang/Long;","[[D","boolean","a.B$C","byte","short","char","float","double"],
			"args":[1,[2],"x",3,[[4]],false,{"f":null},1,2,"c",1.5,2]}`,
			"I[JLjava/lang/String;Ljava/lang/Long;[[DZLa/B$C;BSCFD",
			"1\n[2]\n\"x\"\n3\n[[4]]\nfalse\n{\"f\":null}\n1\n2\n\"c\"\n1.5\n2",
			"1\n[2]\n\"x\"\n3\n[[4]]\nfalse\n{\"f\":null}\n1\n2\n\"c\"\n1.5\n2"},
		{"/a.B/m", `{"args":["\n\"",null],"types":["java.lang.Object","java.lang.Integer"]}`,
			"Ljava/lang/Object;Ljava/lang/Integer;", `"\n\""` + "\nnull", `"\n\""` + "\nnull"},
	} {
		call := parsed(t, jsonCall(c.path, c.body))
		if string(call.Interface) != "a.B" || string(call.Method) != "m" || string(call.Types) != c.types || call.Bare {
			t.Errorf("%s: got %+v", c.body, call)
		}
		if got := arguments(t, call); got != c.fastjson {
			t.Errorf("%s: got %s in fastjson", c.body, got)
		}
		if got := decodedArguments(t, call); got != c.hessian {
			t.Errorf("%s: got %s in hessian2", c.body, got)
		}
	}
}

// TestTypedNumbers checks that the type, not the value, decides the encoding of a number.
func TestTypedNumbers(t *testing.T) {
	call := parsed(t, jsonCall("/a.B/m", `{"types":["long","double","java.util.Date","java.math.BigDecimal","java.math.BigDecimal","byte[]","char[]"],
		"args":[1,1,5,1.50,123456789012345678901,"AQIDBA==","abc"]}`))
	body := string(frameOf(t, call, Hessian2).Body)
	const want = "\xe1" + "D\x3f\xf0\x00\x00\x00\x00\x00\x00" + "J\x00\x00\x00\x00\x00\x00\x00\x05" +
		"C\x14java.math.BigDecimal\x91\x05valueO\x90\x041.50" + "C\x14java.math.BigDecimal\x91\x05valueO\x91\x15123456789012345678901" +
		"B\x00\x04\x01\x02\x03\x04" + "\x03abc"
	if !strings.Contains(body, want) {
		t.Errorf("got %q", body)
	}
	before := []byte("before")
	for _, body := range []string{`{"args":[[1234567890123456789012]]}`, `{"args":[1234567890123456789012],"types":["java.math.BigInteger"]}`} {
		call = parsed(t, jsonCall("/a.B/m", body))
		if got := arguments(t, call); strings.Trim(got, "[]") != "1234567890123456789012" {
			t.Errorf("got %s", got)
		}
		if got, err := call.AppendFrame(before, Hessian2, 1); err != ErrBadArgument || string(got) != "before" {
			t.Errorf("a number too large: got %q, %v", got, err)
		}
	}
	if got, err := call.AppendFrame(before, 3, 1); err != ErrSerialization || string(got) != "before" {
		t.Errorf("another serialization: got %q, %v", got, err)
	}
}

func TestJSONCallRefused(t *testing.T) {
	for _, c := range []struct {
		path, body string
		want       error
	}{
		{"/", `{}`, ErrNotCall}, {"", `{}`, ErrNotCall}, {"*", `{}`, ErrNotCall}, {"/a.B", `{}`, ErrNotCall}, {"/a.B/", `{}`, ErrNotCall},
		{"//m", `{}`, ErrNotCall}, {"/a.B/m/", `{}`, ErrNotCall}, {"/a.B/m/n", `{}`, ErrNotCall}, {"/a.B/%", `{}`, ErrNotCall},
		{"/a.B/%ff", `{}`, ErrBadName}, {"/a.B/m?version", `{}`, ErrBadName}, {"/a.B/m?version=1&version=1", `{}`, ErrBadName},
		{"/a.B/m", ``, ErrBadJSON}, {"/a.B/m", `[]`, ErrBadJSON}, {"/a.B/m", `{"args":[}`, ErrBadJSON}, {"/a.B/m", `{"args":{}}`, ErrBadJSON},
		{"/a.B/m", `{"args":[]} x`, ErrBadJSON}, {"/a.B/m", `{"args":[],"args":[]}`, ErrBadJSON}, {"/a.B/m", `{"types":[],"types":[]}`, ErrBadJSON},
		{"/a.B/m", `{"arguments":[]}`, ErrBadJSON}, {"/a.B/m", "{\"args\":[\"\xff\"]}", ErrBadJSON},
		{"/a.B/m", `{"args":[` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `]}`, ErrBadJSON},
		{"/a.B/m", `{"args":[1],"types":{}}`, ErrBadTypes}, {"/a.B/m", `{"args":[1],"types":[1]}`, ErrBadTypes},
		{"/a.B/m", `{"args":[1],"types":[""]}`, ErrBadTypes}, {"/a.B/m", `{"args":[1],"types":["La/B"]}`, nil},
		{"/a.B/m", `{"args":[1,2],"types":["a;Lb"]}`, ErrBadTypes}, {"/a.B/m", `{"args":[1],"types":["int[][2]"]}`, ErrBadTypes},
		{"/a.B/m", `{"args":[1,2],"types":["II"]}`, ErrArguments}, {"/a.B/m", `{"args":[1],"types":[]}`, ErrArguments},
		{"/a.B/m", `{"types":["int"]}`, ErrArguments}, {"/a.B/m", `{"args":[` + strings.Repeat("1,", 255) + `1]}`, ErrArguments},
		{"/a.B/m", `{"args":["1"],"types":["int"]}`, ErrBadArgument}, {"/a.B/m", `{"args":[1],"types":["java.lang.String"]}`, ErrBadArgument},
		{"/a.B/m", `{"args":["ab"],"types":["char"]}`, ErrBadArgument}, {"/a.B/m", `{"args":[null],"types":["long"]}`, ErrBadArgument},
		{"/a.B/m", `{"args":[9223372036854775808]}`, ErrBadArgument},
	} {
		var call Call
		if err := call.Parse(jsonCall(c.path, c.body)); err != c.want && (err != nil || c.want != nil) {
			t.Errorf("%s %.80s: got %v, want %v", c.path, c.body, err, c.want)
		}
	}
	var call Call
	req := jsonCall("/a.B/m", `{}`)
	for _, method := range []string{"GET", "PUT", "post", ""} {
		req.Method = []byte(method)
		if err := call.Parse(req); err != ErrNotCall {
			t.Errorf("%s: %v", method, err)
		}
	}
	for contentType, want := range map[string]bool{
		"application/x-www-form-urlencoded": true, "APPLICATION/X-WWW-Form-urlencoded ; charset=utf-8": true,
		"application/json": false, "application/x-www-form-urlencodedx": false, "": false,
	} {
		if got := isForm([]byte(contentType)); got != want {
			t.Errorf("%q: got %v", contentType, got)
		}
	}
}

// TestNulls: null is a value of each type but the primitive ones.
func TestNulls(t *testing.T) {
	for descriptor, want := range map[string]bool{
		"Z": false, "B": false, "C": false, "S": false, "I": false, "J": false, "F": false, "D": false,
		"Ljava/lang/Boolean;": true, "Ljava/lang/Byte;": true, "Ljava/lang/Character;": true, "Ljava/lang/Short;": true, "Ljava/lang/Integer;": true,
		"Ljava/lang/Long;": true, "Ljava/lang/Float;": true, "Ljava/lang/Double;": true, "Ljava/lang/String;": true, "Ljava/lang/CharSequence;": true,
		"Ljava/math/BigDecimal;": true, "Ljava/math/BigInteger;": true, "Ljava/util/Date;": true, "[B": true, "[C": true, "[I": true, "La/B;": true,
	} {
		a := argument{text: []byte("null"), json: true}
		if got := a.fits([]byte(descriptor)); got != want {
			t.Errorf("%s may be null: %t", descriptor, got)
		}
	}
}

// TestIntegerBounds: an integer has the range of its type.
func TestIntegerBounds(t *testing.T) {
	for descriptor, bits := range map[string]uint{"B": 8, "S": 16, "I": 32, "J": 64, "Ljava/lang/Byte;": 8, "Ljava/lang/Short;": 16, "Ljava/lang/Integer;": 32, "Ljava/lang/Long;": 64, "Ljava/util/Date;": 64} {
		most := new(big.Int).Lsh(big.NewInt(1), bits-1)
		least := new(big.Int).Neg(most)
		for value, want := range map[string]bool{
			least.String(): true, new(big.Int).Sub(least, big.NewInt(1)).String(): false,
			most.String(): false, new(big.Int).Sub(most, big.NewInt(1)).String(): true,
		} {
			a := argument{text: []byte(value), json: true}
			if got := a.fits([]byte(descriptor)); got != want {
				t.Errorf("%s may be %s: %t", descriptor, value, got)
			}
		}
	}
}

// TestLargeNumbers: a number that no double can have is no hessian2.
func TestLargeNumbers(t *testing.T) {
	for _, body := range []string{`{"args":[1e999]}`, `{"args":[[-1e999]]}`, `{"args":[1e999],"types":["double"]}`} {
		call := parsed(t, jsonCall("/a.B/m", body))
		if _, err := call.AppendFrame(nil, Hessian2, 1); err != ErrBadArgument {
			t.Errorf("%s: %v", body, err)
		}
		if _, err := call.AppendFrame(nil, Fastjson, 1); err != nil {
			t.Errorf("%s in fastjson: %v", body, err)
		}
	}
}

// TestOneUnit: which texts are a char of Java.
func TestOneUnit(t *testing.T) {
	for text, want := range map[string]bool{"": false, "a": true, "é": true, "\uffff": true, "\U00010000": false, "ab": false, "a\u0301": false} {
		if got := isOneUnit([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
