package config

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Retry says when a failed attempt is followed by another.
type Retry struct {
	// Retries that cost a token of `hedge.budget`. Retries and hedges together are at most 5. A request that surely reached no application is retried free, at up to 3 endpoints. After a refusal it is free only if another endpoint has room.
	Attempts int `yaml:"attempts" min:"1" max:"10"`
	// `connect`, `refused`, `reset`, `5xx`, a status such as `"503"`, or a [gRPC code](grpc.md) such as `unavailable`. Empty means never. `reset`, statuses and codes need an idempotent request.
	On []string `yaml:"on"`
	// For each attempt, below `timeout`. Then it has failed as after a `reset`: retried, or 504 `upstream-timeout`. 0 means none.
	PerTryTimeout time.Duration `yaml:"per_try_timeout"`
}

func (r *Retry) setDefaults() { r.Attempts, r.On = 1, []string{RetryConnect, RetryRefused, RetryReset} }

// Names of failures in Retry.On, which a retry follows. Retry.On may also contain a
// status code, such as "503", and the code of a gRPC error.
const (
	RetryConnect = "connect" // no connection, or nothing of the request was sent
	RetryRefused = "refused" // the provider's admission refused it
	RetryReset   = "reset"   // the connection broke before the response, or Retry.PerTryTimeout has passed
	Retry5xx     = "5xx"     // any response with a status of 500 or more
)

// GRPCErrors are the gRPC codes in Retry.On, in the order of their numbers.
var GRPCErrors = []string{
	"cancelled", "unknown", "invalid-argument", "deadline-exceeded", "not-found", "already-exists", "permission-denied",
	"resource-exhausted", "failed-precondition", "aborted", "out-of-range", "unimplemented", "internal", "unavailable",
	"data-loss", "unauthenticated",
}

// checkOn checks the failures that a retry follows.
func (r *Retry) checkOn(in scope, on path) {
	for i, condition := range r.On {
		shown := on.item(i)
		switch {
		case condition == "timeout":
			in.report(shown, "%s includes an attempt that had no response within per_try_timeout", RetryReset)
		case !isRetryCondition(condition):
			in.report(shown, "expected one of %s, a status such as 503 or a code of gRPC such as unavailable, got %q%s",
				strings.Join(retryConditions, ", "), condition, didYouMean(condition, slices.Concat(retryConditions, GRPCErrors)))
		case slices.Contains(r.On[:i], condition):
			in.report(shown, "%q is listed twice", condition)
		}
	}
}

// checkTimeout checks the timeout of an attempt.
func (r *Retry) checkTimeout(in scope, at path, timeout time.Duration) {
	in.refuseIf(r.PerTryTimeout >= timeout, at,
		"%s is not less than the timeout of %s, so it would end no attempt", r.PerTryTimeout, timeout)
}

var retryConditions = []string{RetryConnect, RetryRefused, RetryReset, Retry5xx}

// isRetryCondition reports whether s is a named condition, a code of gRPC or a 5xx status.
func isRetryCondition(s string) bool {
	status, err := strconv.Atoi(s)
	return slices.Contains(retryConditions, s) || slices.Contains(GRPCErrors, s) || err == nil && len(s) == 3 && status >= 500 && status <= 599
}
