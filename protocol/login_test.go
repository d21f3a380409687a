package protocol

import "testing"

func TestLoginOf(t *testing.T) {
	for value, want := range map[string]Login{
		"": NoLogin, ",": NoLogin, " , ,": NoLogin, "Basic eA==": NoLogin, "Bearer ntlm": NoLogin, "Digest a=b, c=d": NoLogin,
		"NTLMv": NoLogin, "Negotiated YII": NoLogin, "ntlm-x": NoLogin, "nego": NoLogin, "X-NTLM": NoLogin,
		`Basic realm="x, NTLM"`: NoLogin, `Basic realm="x\", NTLM, "`: NoLogin, `Digest a="b", c="/x,negotiate"`: NoLogin, `"`: NoLogin, `"\`: NoLogin,

		"Negotiate": LoginOnce, "negotiate YII": LoginOnce, "NEGOTIATE\tYII": LoginOnce, "  Negotiate   YII  ": LoginOnce, "Kerberos YII": LoginOnce,
		"Basic eA==,Negotiate YII": LoginOnce, ",Negotiate YII,": LoginOnce, `Basic realm="a\\", negotiate`: LoginOnce, "Negotiate, Basic": LoginOnce,

		"NTLM0": NoLogin, "NTLM9": NoLogin, "NTLMa": NoLogin, "NTLMz": NoLogin, "NTLMA": NoLogin, "NTLMZ": NoLogin, "NTLM_": NoLogin,

		"NTLM/": LoginSteps, "NTLM@": LoginSteps, "NTLM[": LoginSteps, "NTLM`": LoginSteps, "NTLM{": LoginSteps, "NTLM.": LoginSteps,
		"NTLM": LoginSteps, "nTlM TlRM": LoginSteps, "NTLM:TlRM": LoginSteps, "NTLM=": LoginSteps, "Nego2 YII": LoginSteps,
		"Negotiate TlRMTVNTUAAB": LoginSteps, "Negotiate oYI": LoginSteps, "Negotiate yII": LoginSteps, "Negotiate YII, NTLM": LoginSteps, "NTLM, Negotiate": LoginSteps,
	} {
		if got := LoginOf([]byte(value)); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
}

func TestLoginOfRequest(t *testing.T) {
	line := func(name, value string) Header { return Header{Name: []byte(name), Value: []byte(value)} }
	for _, c := range []struct {
		want Login
		hs   []Header
	}{
		{NoLogin, nil},
		{NoLogin, []Header{line("Authorization", "Basic x"), line("WWW-Authenticate", "NTLM"), line("X-Authorization", "NTLM")}},
		{LoginOnce, []Header{line("AUTHORIZATION", "Basic x"), line("authorization", "Negotiate YII")}},
		{LoginSteps, []Header{line("Proxy-authorization", "NTLM"), line("authorization", "Negotiate YII")}},
	} {
		_, ofLink := FromLink(c.hs)
		if got := LoginOfRequest(c.hs); got != c.want || ofLink != c.want {
			t.Errorf("%s: %d, from a link %d, want %d", c.hs, got, ofLink, c.want)
		}
	}
}

// TestLoginNames: which headers have credentials, or ask for them, whatever the case.
func TestLoginNames(t *testing.T) {
	for name, want := range map[string][2]bool{
		"Authorization": {true, false}, "PROXY-authorization": {true, false}, "Www-Authenticate": {false, true}, "proxy-AUTHENTICATE": {false, true},
		"": {}, "x-authorization": {}, "authenticate": {},
		"authorizatiom": {}, "proxy-authorizatiom": {}, "www-authenticatf": {}, "proxy-authenticatf": {}, // the last letter differs
	} {
		if got := [2]bool{IsCredentials([]byte(name)), isChallenge([]byte(name))}; got != want {
			t.Errorf("%q: credentials, challenge: %v, want %v", name, got, want)
		}
	}
}

func TestLoginFromEndpoint(t *testing.T) {
	line := func(name, value string) Header { return Header{Name: []byte(name), Value: []byte(value)} }
	for _, c := range []struct {
		want bool
		kept int
		hs   []Header
	}{
		{false, 2, []Header{line("WWW-Authenticate", "Basic"), line("X-WWW-Authenticate", "NTLM")}},
		{false, 2, []Header{line("WWW-Authenticate", "Basic"), line("www-authenticate", "Negotiate")}},
		{false, 1, []Header{line("Proxy-Authenticate", "Basic, , NTLM ,Negotiate,")}},
		{false, 1, []Header{line("WWW-Authenticate", `Basic realm="x, NTLM TlRM"`)}},
		{true, 2, []Header{line("WWW-Authenticate", "Negotiate"), line("www-authenticate", "negotiate oYI")}},
		{true, 1, []Header{line("Proxy-Authenticate", "Basic realm=x, NTLM\tTlRM")}},
		{true, 1, []Header{line("WWW-Authenticate", "NTLM=")}},
		{true, 1, []Header{line("persistent-AUTH", "false"), line("Date", "x"), line("x-remora-error", "x")}},
	} {
		kept, _, login := FromEndpoint(c.hs)
		if login != c.want || len(kept) != c.kept {
			t.Errorf("%s: %t, want %t; kept %s", c.hs, login, c.want, kept)
		}
	}
}
