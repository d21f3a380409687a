package caching

import "testing"

// TestClaims: headers by which products and frameworks know who asks, and others.
func TestClaims(t *testing.T) {
	for want, names := range map[claim][]string{
		credentials: {"Authorization", "Proxy-Authorization", "cookie"},
		claimOther: {
			"X-Api-Key", "x_api_key", "X_Api-Key", "Api-Key", "ApiKey", "X-APIKEY", "X-Goog-Api-Key", "Ocp-Apim-Subscription-Key", "DD-APPLICATION-KEY",
			"X-Auth-Token", "X-Authtoken", "X-Access-Token", "AccessToken", "X-Amz-Security-Token", "X-Vault-Token", "Private-Token", "PRIVATE-TOKEN",
			"Job-Token", "X-Consul-Token", "X-Csrf-Token", "X-XSRF-TOKEN", "Sec-Token-Binding", "X-Session-Id", "X-SessionId", "Session", "Cookie2",
			"DPoP", "Signature", "Signature-Input", "X-Hub-Signature-256", "X-Twilio-Signature", "X-GitHub-OTP",
			"Client-Cert", "Client-Cert-Chain", "X-Forwarded-Client-Cert", "X-ARR-ClientCert", "X-Amzn-Mtls-Clientcert-Subject", "SSL_CLIENT_S_DN",
			"X-SSL-Client-CN", "X-Client-Verify", "X-Forwarded-Tls-Client-Cert-Info", "X-Spiffe-Id",
			"Remote-User", "X-Remote-User", "X-Remote-Group", "X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Preferred-Username",
			"X-Auth-Request-User", "X-WebAuth-User", "X-Userinfo", "Impersonate-User", "Tailscale-User-Login", "X-Consumer-Id", "X-Credential-Identifier",
			"X-MS-CLIENT-PRINCIPAL", "X-Goog-IAP-JWT-Assertion", "Cf-Access-Jwt-Assertion", "CF-Access-Client-Secret", "x-amzn-oidc-identity",
			"X-Tenant", "X-Scope-OrgID", "X-Org", "X-Account-Id", "X-Customer", "X-Role", "X-On-Behalf-Of", "X-Password", "Ticket",
			"X-Sign", "X-Pin", "X-Client-Id", "CF-Access-Client-Id", "X-AppId", "X-Sub", "X-Actor", "X-Owner", "X-Admin",
			"X-Permissions", "X-Team", "X-Workspace-Id",
		},
		noClaim: {
			"", "-", "Host", "Accept", "Accept-Encoding", "Accept-Language", "User-Agent", "Referer", "Origin", "Content-Type", "Content-Digest",
			"Cache-Control", "Pragma", "Range", "If-None-Match", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Ssl",
			"X-Real-Ip", "X-Request-Id", "X-Correlation-Id", "Traceparent", "Tracestate", "Baggage", "X-B3-TraceId", "X-Amzn-Trace-Id",
			"Sec-Fetch-User", "Sec-Fetch-Site", "Sec-WebSocket-Key", "Idempotency-Key", "DNT", "TE", "Priority", "Keep-Alive", "Upgrade-Insecure-Requests",
			"X-Requested-With", "X-Tier", "X-Client-Ip", "X-Client-Version", "X-Nonce", "X-Pinned", "X-Assign", "X-Envoy-Expected-Rq-Timeout-Ms", "X-Trading-Desk",
		},
	} {
		c := newClaims([]string{"X-Trading-Desk", "X-Session-Token"})
		for _, name := range names {
			_, got := c.next(headers(name), 0)
			if searched := c.of([]byte(name)); got != want || searched != want {
				t.Errorf("%q: claim %d, searched for %d, want %d", name, got, searched, want)
			}
		}
		if c.of([]byte("x-session-token")) != noClaim {
			t.Error("a name that is to be ignored is a claim")
		}
	}
}

func TestClaimsAllocateNothing(t *testing.T) {
	c := newClaims(nil)
	hs := headers("X-Vault-Token: a", "Accept-Encoding: a", "a-name-of-more-than-thirty-one-bytes: a")
	if n := testing.AllocsPerRun(100, func() {
		for i, is := c.next(hs, 0); is != noClaim; i, is = c.next(hs, i+1) {
			continue
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
