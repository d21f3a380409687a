package flame

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// module is the path of this module, with which names of its functions begin.
const module = "github.com/remora-proxy/remora/"

// owner says whose code a function is.
type owner int

const (
	remora owner = iota
	libraries
	standard
	goRuntime
	kernel
	nobody // a block that is no function
)

// owners has the text of each owner in the legend, and the colour of its blocks.
var owners = [...]struct{ text, colour string }{
	remora:    {"remora", "#f7a35c"},
	libraries: {"libraries", "#f4d06f"},
	standard:  {"standard library", "#a8d08d"},
	goRuntime: {"Go runtime", "#9ec5e8"},
	kernel:    {"system calls", "#d9a6c8"},
	nobody:    {"", "#ddd"},
}

// prefixes are what the names of an owner's functions begin with. The first match counts.
var prefixes = []struct {
	prefix string
	owner  owner
}{
	{module, remora},
	{"main.", remora},
	{"syscall.", kernel},
	{"internal/runtime/syscall", kernel},
	{"golang.org/x/sys/", kernel},
	{"runtime.", goRuntime},
	{"runtime/", goRuntime},
	{"internal/runtime/", goRuntime},
}

func ownerOf(name string) owner {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p.prefix) {
			return p.owner
		}
	}
	switch {
	case !strings.Contains(name, "."): // such as memeqbody, which is assembly
		return goRuntime
	case isStandard(name):
		return standard
	}
	return libraries
}

// isStandard reports whether a function is of the standard library: the path of any other
// package begins with a host.
func isStandard(name string) bool {
	first, _, isPath := strings.Cut(name, "/")
	return !isPath || !strings.Contains(first, ".")
}

// major is the element of a path that has the major version of a module.
var major = regexp.MustCompile(`/v\d+([./])`)

// short returns the name of a function without host, owner and version of its module, and for
// one of this module without its path.
func short(name string) string {
	if own, ok := strings.CutPrefix(name, module); ok {
		return own
	}
	if isStandard(name) {
		return name
	}
	host, rest, _ := strings.Cut(name, "/")
	if _, path, isPath := strings.Cut(rest, "/"); isPath && host == "github.com" {
		rest = path
	}
	return major.ReplaceAllString(rest, "$1")
}

// shortest is the length from which a part of a name still says something.
const shortest = 3

// fit returns as much of a short name as fits into a number of characters: without the path,
// then without the package, then without the receiver, then cut off.
func fit(name string, length int) string {
	if length < shortest {
		return ""
	}
	base := name[strings.LastIndexByte(name, '/')+1:]
	_, bare, _ := strings.Cut(base, ".")
	_, method, _ := strings.Cut(bare, ").")
	least := name
	for _, text := range []string{name, base, bare, method} {
		if text == "" {
			continue
		}
		if utf8.RuneCountInString(text) <= length {
			return text
		}
		least = text
	}
	return string([]rune(least)[:length-1]) + "…"
}

// scaled returns v in the largest of the units that v is at least one of. Each is base times the
// one before.
func scaled(v int64, base float64, units ...string) string {
	x := float64(v)
	for x >= base && len(units) > 1 {
		x /= base
		units = units[1:]
	}
	digits := 0
	switch {
	case x == float64(v): // of the first unit there are no parts
	case x < 10:
		digits = 2
	case x < 100:
		digits = 1
	}
	return strconv.FormatFloat(x, 'f', digits, 64) + " " + units[0]
}
