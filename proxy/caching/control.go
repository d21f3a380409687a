package caching

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// unset is a number of seconds that was not given.
const unset = time.Duration(-1)

// longest is what larger numbers of seconds count as (RFC 9111 section 1.2.2).
const longest = math.MaxInt32 * time.Second

// nextDirective returns the first directive of a list, and what follows. The name is empty at the
// end of the list, and for a malformed member. An argument has no quotes.
func nextDirective(list []byte) (name, arg, rest []byte) {
	i := skipBlank(list, 0)
	for ; i < len(list) && list[i] == ','; i = skipBlank(list, i+1) {
	}
	from := i
	for i < len(list) && list[i] != ',' && list[i] != '=' && list[i] != ' ' && list[i] != '\t' {
		i++
	}
	name = list[from:i]
	if i < len(list) && list[i] == '=' {
		i++
		if i < len(list) && list[i] == '"' {
			from = i + 1
			for i++; i < len(list) && list[i] != '"'; i++ {
				if list[i] == '\\' {
					i++
				}
			}
			i = min(i, len(list))
			arg = list[from:i]
		} else {
			for from = i; i < len(list) && list[i] != ',' && list[i] != ' ' && list[i] != '\t'; i++ {
			}
			arg = list[from:i]
		}
	}
	for i < len(list) && list[i] != ',' {
		i++
	}
	return name, arg, list[i:]
}

func skipBlank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
		i++
	}
	return i
}

// seconds reads a number of seconds.
func seconds(b []byte) (d time.Duration, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(10*n+int(c-'0'), math.MaxInt32)
	}
	return time.Duration(n) * time.Second, true
}

// lifetime lowers *d to a number of seconds: of several, the shortest counts. An invalid number
// counts as 0: what it limits is stale.
func lifetime(d *time.Duration, arg []byte) {
	n, _ := seconds(arg)
	if *d == unset || n < *d {
		*d = n
	}
}

// extension sets *d to a number of seconds. An invalid one counts as absent.
func extension(d *time.Duration, arg []byte) {
	if n, ok := seconds(arg); ok {
		*d = n
	}
}

// directives are those of a response.
type directives struct {
	noStore, noCache, private, public, mustRevalidate, proxyRevalidate, mustUnderstand bool

	maxAge, sharedMaxAge, staleWhile, staleIfError time.Duration
}

func (d *directives) read(value []byte) {
	for {
		name, arg, rest := nextDirective(value)
		if value = rest; len(name) == 0 && len(rest) == 0 {
			return
		}
		is := func(lower string) bool { return protocol.EqualFold(name, lower) }
		switch {
		case is("max-age"):
			lifetime(&d.maxAge, arg)
		case is("s-maxage"):
			lifetime(&d.sharedMaxAge, arg)
		case is("public"):
			d.public = true
		case is("no-store"):
			d.noStore = true
		case is("no-cache"): // one with field names counts as one without: no response is edited
			d.noCache = true
		case is("private"):
			d.private = true
		case is("must-revalidate"):
			d.mustRevalidate = true
		case is("proxy-revalidate"):
			d.proxyRevalidate = true
		case is("must-understand"):
			d.mustUnderstand = true
		case is("stale-while-revalidate"):
			extension(&d.staleWhile, arg)
		case is("stale-if-error"):
			extension(&d.staleIfError, arg)
		}
	}
}
