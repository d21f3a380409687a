package dubbo

import (
	"encoding/hex"
	"strings"
	"testing"
)

// Frames as written by real callers and providers.
const (
	vectorInterface = "com.alibaba.dubbo.performance.demo.provider.IHelloService"
	vectorForm      = "interface=" + vectorInterface + "&method=hash&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=abc"

	fastjsonCall = "dabbc6000000000000000001000000b0" +
		"22322e302e31220a22636f6d2e616c69626162612e647562626f2e706572666f726d616e63652e64656d6f2e70726f76696465722e4948656c6c6f" +
		"53657276696365220a6e756c6c0a2268617368220a224c6a6176612f6c616e672f537472696e673b220a22616263220a7b2270617468223a22636f" +
		"6d2e616c69626162612e647562626f2e706572666f726d616e63652e64656d6f2e70726f76696465722e4948656c6c6f53657276696365227d0a"
	fastjsonResponse = "dabb0614000000000000000100000008310a39363335340a"

	hessian2Call = "dabbc2000000000000000001000000a5" +
		"05322e302e323039636f6d2e616c69626162612e647562626f2e706572666f726d616e63652e64656d6f2e70726f76696465722e4948656c6c6f53" +
		"65727669636505302e302e300468617368124c6a6176612f6c616e672f537472696e673b036162634804706174683039636f6d2e616c6962616261" +
		"2e647562626f2e706572666f726d616e63652e64656d6f2e70726f76696465722e4948656c6c6f536572766963655a"
	hessian2Response            = "dabb0214000000000000000100000004" + "91d57862"
	hessian2ResponseAttachments = "dabb0214000000000000000100000012" + "94d57862" + "4805647562626f05322e302e325a"

	heartbeatResponse = "dabb2614000000000000002a000000056e756c6c0a"
)

// unhexed returns the bytes of hexadecimal digits; spaces are ignored.
func unhexed(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// decoded returns the only frame in digits.
func decoded(t testing.TB, digits string) Frame {
	t.Helper()
	b := unhexed(t, digits)
	f, n, err := Decode(b, 1<<20)
	if err != nil || n != len(b) {
		t.Fatalf("%d of %d bytes, %v", n, len(b), err)
	}
	return f
}

func TestVectorCalls(t *testing.T) {
	for _, c := range []struct {
		wire          string
		serialization byte
		version       string
	}{
		{fastjsonCall, Fastjson, "2.0.1"},
		{hessian2Call, Hessian2, "2.0.2"},
	} {
		f := decoded(t, c.wire)
		if !f.Request || !f.TwoWay || f.Event || f.Serialization != c.serialization || f.ID != 1 || f.Status != 0 {
			t.Errorf("got %+v", f)
		}
		var inv Invocation
		if err := inv.Parse(f.Serialization, f.Body); err != nil {
			t.Fatal(err)
		}
		want := Invocation{
			DubboVersion: []byte(c.version), Path: []byte(vectorInterface), Method: []byte("hash"), Types: []byte("Ljava/lang/String;"),
		}
		if got := show(&inv); got != show(&want) {
			t.Errorf("got %s, want %s", got, show(&want))
		}
		if got := hex.EncodeToString(AppendFrame(nil, &f)); got != c.wire {
			t.Errorf("encoded again:\n%s, want\n%s", got, c.wire)
		}
		call := parsedForm(t, vectorForm)
		got, err := call.AppendFrame([]byte("before"), c.serialization, 1)
		if err != nil || hex.EncodeToString(got[len("before"):]) != c.wire {
			t.Errorf("got %x, %v, want\n%s", got, err, c.wire)
		}
	}
}

func TestVectorResponses(t *testing.T) {
	for _, wire := range []string{
		fastjsonResponse, hessian2Response, hessian2ResponseAttachments,
		"dabb0614000000000000000100000014" + hex.EncodeToString([]byte("4\n96354\n{\"dubbo\":1}\n")),
	} {
		f := decoded(t, wire)
		if f.Request || f.TwoWay || f.Event || f.Status != StatusOK || f.ID != 1 {
			t.Errorf("got %+v", f)
		}
		for _, bare := range []bool{true, false} {
			got, reply, err := AppendReply([]byte("before:"), &f, bare, 100)
			if err != nil || string(got) != "before:96354" || reply.Status != 200 || reply.Code != "" {
				t.Errorf("%s: got %q, %+v, %v", wire, got, reply, err)
			}
		}
	}
}

func TestVectorHeartbeat(t *testing.T) {
	f := decoded(t, heartbeatResponse)
	if f.Request || !f.Event || f.Status != StatusOK || f.ID != 42 || f.Serialization != Fastjson {
		t.Errorf("got %+v", f)
	}
	beat, _, err := Decode(AppendHeartbeat(nil, Fastjson, 42), 100)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(AppendHeartbeatAnswer(nil, &beat)); got != heartbeatResponse {
		t.Errorf("got %s", got)
	}
}
