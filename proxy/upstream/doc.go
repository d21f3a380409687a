// Package upstream has no code of its own. Each folder reaches endpoints by one protocol: it
// makes an race.Upstream of an endpoint and carries attempts there. It knows no session.
package upstream
