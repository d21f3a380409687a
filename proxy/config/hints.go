package config

import (
	"errors"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hints say what a wrong text was probably meant to be. Each is "" or begins with "; ".

// namesHere are names of other proxies, each with the names here that it may mean. They are in the form of squashed.
var namesHere = map[string][]string{
	// Sections.
	"clusters": {"services"}, "cluster": {"service"}, "upstreams": {"services"}, "upstream": {"service", "services"},
	"backends": {"services"}, "backend": {"service", "services"}, "defaultbackend": {"service"},
	"entrypoints": {"listeners"}, "frontends": {"listeners"}, "frontend": {"listeners"}, "server": {"listeners", "endpoints"},
	"servers": {"endpoints", "listeners"}, "loadassignment": {"endpoints"}, "hosts": {"endpoints", "host"}, "targets": {"endpoints"},
	"virtualhosts": {"routes"}, "locations": {"routes"}, "location": {"path", "routes"}, "routers": {"routes"}, "rule": {"match"},
	// Listeners and endpoints.
	"port": {"address"}, "bind": {"address"}, "listen": {"address"}, "socketaddress": {"address"}, "host": {"address"}, "url": {"address"},
	"ssl": {"tls"}, "transportsocket": {"tls"}, "certificate": {"cert"}, "certfile": {"cert"}, "sslcertificate": {"cert"},
	"keyfile": {"key"}, "privatekey": {"key"}, "sslcertificatekey": {"key"}, "cafile": {"ca"}, "trustedca": {"ca"},
	"https": {"http"}, "h2": {"http2", "http"}, "h2c": {"http2", "http"}, "http2": {"http"}, "grpc": {"http"}, "http11": {"http"}, "http/1.1": {"http"},
	"tlsv1.2": {"1.2"}, "tlsv12": {"1.2"}, "tlsv1.3": {"1.3"}, "tlsv13": {"1.3"},
	// Routes.
	"prefix": {"path"}, "pathprefix": {"path"}, "headers": {"header"}, "methods": {"method"}, "queryparameters": {"query"},
	"domains": {"host"}, "servername": {"host"}, "authority": {"host"}, "route": {"service"}, "weightedclusters": {"service"},
	"exactmatch": {"exact"}, "prefixmatch": {"prefix"}, "saferegex": {"regex"}, "saferegexmatch": {"regex"}, "presentmatch": {"present"},
	// Services.
	"type": {"discover"}, "lbpolicy": {"lb"}, "balance": {"lb"}, "loadbalancer": {"lb"}, "healthcheck": {"check"}, "healthchecks": {"check"},
	"circuitbreaker": {"breaker"}, "circuitbreakers": {"breaker"}, "outlierdetection": {"outlier"}, "ratelimits": {"rate_limit"},
	"roundrobin": {"weighted_round_robin"}, "leastconn": {"least_pending"}, "leastrequest": {"least_pending"}, "leasttime": {"peak_ewma"},
	"ringhash": {"consistent_hash"}, "maglev": {"consistent_hash"}, "iphash": {"consistent_hash"},
	"numretries": {"attempts"}, "maxretries": {"attempts"}, "retries": {"attempts", "retry"}, "retryon": {"on"}, "retrypolicy": {"retry"},
	"connectfailure": {"connect"}, "refusedstream": {"refused"}, "gatewayerror": {"5xx"}, "servererror": {"5xx"}, "error": {"connect"},
	"yes": {"true"}, "no": {"false"}, "idempotencykey": {"key"},
	// Logs.
	"warning": {"warn"}, "trace": {"debug"}, "critical": {"error"}, "fatal": {"error"},
}

// squashed returns name in lower case and without _ and -: maxQueue and max-queue mean max_queue.
func squashed(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}

// nameHere returns the one of names that given probably means: given is another spelling of it, or what another proxy
// calls it. It returns "" if there is none.
func nameHere(given string, names []string) string {
	given = squashed(given)
	for _, name := range names {
		if given == squashed(name) {
			return name
		}
	}
	for _, name := range namesHere[given] {
		if slices.Contains(names, name) {
			return name
		}
	}
	return ""
}

// syntaxHint returns what to do about an error of the YAML parser in a line.
func syntaxHint(message, line string) string {
	_, value, _ := strings.Cut(line, ": ")
	switch {
	case strings.Contains(message, "\t"):
		return "; expected spaces in place of the tab"
	case strings.Contains(line, "${"):
		return `; inside { } and [ ] a variable must be quoted: "${VAR}"`
	case strings.Contains(message, "escape character"):
		return "; in single quotes a backslash stands for itself"
	case strings.Contains(message, "unexpected key name"):
		return "; expected key: value, with a space behind the colon"
	case strings.Contains(line, "{{"):
		return "; templates are not filled in, only ${NAME}"
	case strings.Contains(message, "invalid key"), value != "" && strings.Contains("[{*&@`%", value[:1]):
		return "; a value that begins with one of [ { * & @ % needs quotes"
	case strings.Contains(message, "not allowed in this context"):
		return "; expected the indentation of the lines around it"
	}
	return ""
}

// colonHint returns what to do about key:value without a space, which is one text in YAML.
func colonHint(n *node) string {
	if n.kind == kindScalar && colonAlone.MatchString(n.text) {
		return "; expected a space behind the colon"
	}
	return ""
}

var colonAlone = regexp.MustCompile(`^[a-z_]+:[^ /]`)

// firstKeys returns some keys of a struct type.
func firstKeys(t reflect.Type) string {
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return strings.Join(names[:min(3, len(names))], ", ")
}

// unitHint returns a hint for a common mistake with units.
func unitHint(text string, err error, f field, t reflect.Type) string {
	isDuration := t == reflect.TypeFor[time.Duration]()
	_, notNumber := strconv.ParseFloat(text, 64)
	startsWithDigit := text != "" && text[0] >= '0' && text[0] <= '9'
	switch {
	case strings.HasSuffix(text, "%"):
		return "; expected it without the %"
	case isDuration && notNumber == nil:
		return "; the unit is missing"
	case isDuration && startsWithDigit:
		return "; the units are ms, s, m and h, without a space"
	case f.size && startsWithDigit && !errors.Is(err, strconv.ErrRange):
		return "; the units are KiB, MiB and GiB, right behind a whole number"
	}
	return ""
}

// shareHint returns a hint for a share in percent.
func shareHint(text string, f field) string {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(percent >= 0 && percent <= 100) || intervalEnd(f.in) != 1 || percent < 2 && !strings.HasSuffix(text, "%") {
		return ""
	}
	return "; " + strconv.FormatFloat(percent, 'g', -1, 64) + " percent is " + strconv.FormatFloat(percent/100, 'g', -1, 64)
}

// addressHint returns what an address of another form probably means.
func addressHint(addr string) string {
	switch {
	case addr == "":
		return "; an example is 127.0.0.1:8080"
	case strings.Contains(addr, "://"):
		return "; it has no scheme, since protocol and tls say what is spoken"
	case strings.HasPrefix(addr, "/"):
		return "; a Unix socket is unix:/path"
	case strings.Contains(addr, "{{"):
		return "; templates are not filled in, only ${NAME}"
	case strings.Contains(addr, "$") && !strings.Contains(addr, "${"):
		return "; a variable is ${NAME}"
	case strings.HasPrefix(addr, "*"):
		return "; all addresses are [::]"
	case strings.Trim(addr, "0123456789") == "":
		return "; a port alone is :8080"
	case !strings.Contains(addr, ":"):
		return "; the port is missing"
	}
	return ""
}

// regexHint returns what RE2 has in place of what other engines have.
func regexHint(wrong *syntax.Error) string {
	switch wrong.Code {
	case syntax.ErrInvalidPerlOp, syntax.ErrInvalidEscape:
		return "; RE2 has no lookahead, no lookbehind and no backreference"
	case syntax.ErrMissingRepeatArgument:
		return "; any text is .*"
	case syntax.ErrMissingParen, syntax.ErrUnexpectedParen:
		return `; a parenthesis itself is \(`
	case syntax.ErrMissingBracket:
		return `; a bracket itself is \[`
	}
	return ""
}
