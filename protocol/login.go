package protocol

import "bytes"

// Login says what credentials, or a challenge for them, do to the connection that carries them. Some
// schemes log in a connection and not a request (RFC 4559 section 6): what follows on it counts as from
// the same user, with or without credentials.
type Login uint8

// The values of a Login.
const (
	NoLogin    Login = iota // nothing
	LoginOnce               // the credentials of this request may log in its connection
	LoginSteps              // they are one of several steps, which must share a connection
)

// loginSchemes log in connections. steps means that a login never takes one request alone.
var loginSchemes = [...]struct {
	name  string
	steps bool
}{{"ntlm", true}, {"negotiate", false}, {"kerberos", false}, {"nego2", true}}

// LoginOf reads the value of a header of credentials or a challenge: a scheme with what belongs to it,
// or a list.
func LoginOf(value []byte) (l Login) {
	for more := true; more; {
		element, rest := value, []byte(nil)
		if more = bytes.IndexByte(value, ',') >= 0; more {
			n := unquotedComma(value)
			element, rest, more = value[:n], value[min(n+1, len(value)):], n < len(value)
		}
		l, value = max(l, loginOf(bytes.Trim(element, " \t"))), rest
	}
	return l
}

// bindsConnection reports whether a challenge goes on with a login. The name of a scheme alone offers one, and
// the connection is as it was.
func bindsConnection(challenge []byte) bool {
	for more := true; more; {
		n := unquotedComma(challenge)
		element := bytes.Trim(challenge[:n], " \t")
		if loginOf(element) != NoLogin && bytes.ContainsFunc(element, func(c rune) bool { return !isNameChar(byte(c)) }) {
			return true
		}
		if more = n < len(challenge); more {
			challenge = challenge[n+1:]
		}
	}
	return false
}

// unquotedComma returns the index of the first comma outside of quotes, or the length of b.
func unquotedComma(b []byte) int {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == ',':
			return i
		}
	}
	return len(b)
}

// loginOf reads one element. A server may accept anything but a letter behind the name of the scheme.
func loginOf(b []byte) Login {
	for i := range loginSchemes {
		s := &loginSchemes[i]
		n := len(s.name)
		switch {
		case len(b) < n || !EqualFold(b[:n], s.name):
		case len(b) > n && isNameChar(b[n]):
		case s.steps || !isFirstToken(bytes.TrimLeft(b[n:], " \t")):
			return LoginSteps
		default:
			return LoginOnce
		}
	}
	return NoLogin
}

func isNameChar(c byte) bool {
	return c-'0' < 10 || c|0x20-'a' < 26 || c == '-' || c == '_'
}

// isFirstToken reports whether a token of GSS-API in Base64 may complete a login: it begins with the tag
// 0x60 of the first token (RFC 2743 section 3.1). Those of NTLM, and later ones of SPNEGO, do not.
func isFirstToken(b []byte) bool { return len(b) == 0 || b[0] == 'Y' }

// IsCredentials reports whether a header has credentials for an application or a proxy.
func IsCredentials(name []byte) bool {
	return len(name) == len("authorization") && EqualFold(name, "authorization") ||
		len(name) == len("proxy-authorization") && EqualFold(name, "proxy-authorization")
}

// isChallenge reports whether a header of a response asks for credentials, or ends a login.
func isChallenge(name []byte) bool {
	return len(name) == len("www-authenticate") && EqualFold(name, "www-authenticate") ||
		len(name) == len("proxy-authenticate") && EqualFold(name, "proxy-authenticate")
}

// LoginOfRequest reads all credentials of a request.
func LoginOfRequest(hs []Header) (l Login) {
	for i := range hs {
		if IsCredentials(hs[i].Name) {
			l = max(l, LoginOf(hs[i].Value))
		}
	}
	return l
}
