package config

import "strings"

// Admin is the admin API.
type Admin struct {
	// As of a listener. Empty means no admin API. Off loopback it needs a token.
	Address string `yaml:"address" reload:"restart"`
	// Bearer token of callers, except at `/healthz` and `/readyz`.
	Token string `yaml:"token" secret:"true" reload:"restart"`
	// Profiles of the process under `/debug/pprof/`, for `remora profile`. Off, callers get 403.
	Profiles bool `yaml:"profiles"`
}

func (a *Admin) setDefaults() { a.Address = "127.0.0.1:9901" }

// check reports a token that no header can carry, and an API without a token that others can reach.
func (a *Admin) check(in scope, at path) {
	addr, token := a.Address, a.Token
	in.refuseIf(strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }),
		at.key("token"), "expected ASCII without spaces, because a header carries it")
	if addr == "" || !checkSocketAddress(in, at.key("address"), addr, bindable) {
		return
	}
	in.refuseIf(token == "" && !isLoopback(addr), at.key("address"),
		"expected a loopback address; on any other the admin API needs admin.token")
}
