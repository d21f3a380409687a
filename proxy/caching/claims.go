package caching

import (
	"bytes"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/protocol"
)

// claim is what a header may say about who asks.
type claim uint8

const (
	noClaim     claim = iota
	claimOther        // a name of a convention, such as X-Api-Key: a response may vary by it
	credentials       // of HTTP itself
)

// claims tells headers that may say who asks from others.
type claims struct {
	ignored []string // in lower case: the configuration says that they don't matter
}

// newClaims returns claims but for those of the ignored headers.
func newClaims(ignored []string) *claims {
	return &claims{ignored: lowerAll(ignored)}
}

func lowerAll(names []string) (lower []string) {
	for _, name := range names {
		lower = append(lower, strings.ToLower(name))
	}
	return lower
}

// next returns the first header with a claim, from hs[i] on, and the claim; noClaim if there is none.
func (c *claims) next(hs []protocol.Header, i int) (int, claim) {
	for ; i < len(hs); i++ {
		switch string(hs[i].Name) {
		case // Names that nearly all requests have, as they are usually spelled. The search in other names takes longer.
			"Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "CDN-Loop", "Connection", "Host", "If-None-Match", "Referer", "Traceparent",
			"User-Agent", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Request-Id",
			"accept", "accept-encoding", "accept-language", "cache-control", "cdn-loop", "host", "if-none-match", "referer", "traceparent",
			"user-agent", "via", "x-forwarded-for", "x-forwarded-proto", "x-request-id":
			continue
		}
		if is := c.of(hs[i].Name); is != noClaim {
			return i, is
		}
	}
	return i, noClaim
}

// of returns the claim of the header with a name.
func (c *claims) of(name []byte) claim {
	if !claimWords.find(name) {
		return noClaim
	}
	is := func(lower string) bool { return protocol.EqualFold(name, lower) }
	switch {
	case slices.ContainsFunc(noClaims, is) || slices.ContainsFunc(c.ignored, is):
		return noClaim
	case protocol.IsCredentials(name) || is("cookie"):
		return credentials
	}
	return claimOther
}

// noClaims are names with a word of claims that say nothing about who asks.
var noClaims = []string{"user-agent", "sec-fetch-user", "sec-websocket-key", "idempotency-key", "surrogate-key"}

// claimWords finds words of the names by which services and proxies know who asks: X-Api-Key, X-Auth-Token,
// DPoP, X-Forwarded-Client-Cert, SSL_CLIENT_S_DN, Remote-User, Cf-Access-Jwt-Assertion, X-Scope-OrgID. With a
// word too many, requests that differ there share nothing. With a word too few, one client gets what is for
// another. A hyphen is where a word begins or ends.
var claimWords = newMatcher(strings.Fields(`
	-account -actor -admin -assertion -auth -bearer -behalf -cert -claim -client-id- -consumer -cookie -credential -csrf -customer
	-dpop -email -fingerprint -group -hmac -identi -impersonat -jwt -key -login -logon -member -mtls -oauth -oidc -org -owner
	-pass -permission -principal -role -saml -scope -secret -sess -signature -spiffe -subject -team -tenant -ticket -token -user -verif
	-workspace -xsrf
	auth- cert- cookie- key- password- secret- sessid- session- sessionid- token- user- userid-
	-appid- -clientid- -cn- -dn- -otp- -pin- -psk- -sid- -sign- -sso- -sub- -uid-`))

// covered reports whether names, a list of AppendNames, has all headers of a convention by which a
// request may say who asks.
func (c *claims) covered(names []byte, hs []protocol.Header) bool {
	for i, is := c.next(hs, 0); is != noClaim; i, is = c.next(hs, i+1) {
		if is == claimOther && !hasName(names, hs[i].Name) {
			return false
		}
	}
	return true
}

// hasName reports whether a list of AppendNames has a name.
func hasName(names, name []byte) bool {
	for other, rest := NextName(names); other != nil; other, rest = NextName(rest) {
		if bytes.EqualFold(other, name) {
			return true
		}
	}
	return false
}
