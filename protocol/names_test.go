package protocol

import (
	"slices"
	"testing"
)

// names returns the names of hs.
func names(hs []Header) (all []string) {
	for _, h := range hs {
		all = append(all, string(h.Name))
	}
	return all
}

// TestOwnNames: names of sidecars are known however they are spelled, also by what makes variables of them.
func TestOwnNames(t *testing.T) {
	for name, want := range map[string]bool{
		"x-remora-error": true, "X-Remora-Error": true, "X_REMORA_ERROR": true, "x_remora-a": true, "x-remora_a": true, "X-REMORA-Z": true,
		"x-remora-": false, "x-remora": false, "x-remor": false, "": false, "x-request-id": false, "x-forwarded-for": false,
		"y-remora-a": false, "x-remorb-a": false, "x-remora+a": false, "xxremora-a": false, "x-re-ora-a": false, "x-reMora-a": true, "x-re\rora-a": false,
		"_-remora-a": false, "x-r\x05mora-a": false, "x-remor!-a": false, "x-remor\x01-a": false, "\x18-remora-a": false, "x-Zemora-a": false,
	} {
		if got := IsOwn([]byte(name)); got != want {
			t.Errorf("%q is a name of sidecars: %t", name, got)
		}
		hs := lines("a: 1|" + name + ": 2|b: 3")
		if kept := names(WithoutOwn(hs)); slices.Contains(kept, name) == want || !slices.Contains(kept, "a") || !slices.Contains(kept, "b") {
			t.Errorf("%q: %q are kept", name, kept)
		}
		if kept := WithoutOwn(lines(name + ": 1|" + name + ": 2")); len(kept) > 0 == want {
			t.Errorf("%q alone: %q are kept", name, kept)
		}
	}
}

// TestFromLink: of the headers of sidecars, only those that a sidecar sends pass a link.
func TestFromLink(t *testing.T) {
	for text, want := range map[string]bool{
		"x-remora-timeout-ms: 7": true, "X-Remora-Timeout-Ms: 7": true, "x-remora-mirror: 1": true, "x-remora-mirror: 0": false, "x-remora-mirror: ": false,
		"x_remora_timeout_ms: 7": false, "x-remora-error: a": false, "x-remora-attempt: 1": false, "x-remora-hedge: off": false, "other: a": true,
	} {
		kept, login := FromLink(lines("a: 1|" + text + "|b: 2"))
		if got := len(kept) == 3; got != want || string(kept[0].Name) != "a" || string(kept[len(kept)-1].Name) != "b" || login != NoLogin {
			t.Errorf("%s: kept %s, login %d", text, joined(kept), login)
		}
	}
}

// TestFromEndpoint: an endpoint says nothing in the place of a sidecar. Whether it says a date is seen.
func TestFromEndpoint(t *testing.T) {
	for _, c := range []struct {
		text, want string
		dated      bool
	}{
		{"a: 1", "a: 1", false},
		{"Date: x|a: 1", "Date: x|a: 1", true},
		{"a: 1|dATE: x", "a: 1|dATE: x", true},
		{"Date: x|dada: y", "Date: x|dada: y", true},
		{"data: x", "data: x", false},
		{"X-Remora-Error: a|a: 1|x_remora_fallback: b", "a: 1", false},
		{"Persistent-Auth: true|a: 1", "a: 1", false},
		{"x-persistent-auth: true", "x-persistent-auth: true", false},
	} {
		kept, dated, _ := FromEndpoint(lines(c.text))
		if got := joined(kept); got != c.want || dated != c.dated {
			t.Errorf("%s: %s, dated %t", c.text, got, dated)
		}
	}
}

// TestTimeoutNames: which headers say how long a caller waits, whatever the case.
func TestTimeoutNames(t *testing.T) {
	for name, want := range map[string]TimeoutField{
		HeaderTimeout: OwnTimeout, "X-REMORA-TIMEOUT-MS": OwnTimeout, HeaderGRPCTimeout: GRPCTimeout, "Grpc-Timeout": GRPCTimeout,
		HeaderEnvoyTimeout: EnvoyTimeout, "X-Envoy-Expected-Rq-Timeout-Ms": EnvoyTimeout,
		"": NotTimeout, "x-remora-timeout-mt": NotTimeout, "grpc-timeouu": NotTimeout, "x-envoy-expected-rq-timeout-mt": NotTimeout,
		"a-name-that-is-as-long-as-none-of-those-which-say-how-long-callers-wait": NotTimeout,
	} {
		if got := TimeoutFieldOf([]byte(name)); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}
