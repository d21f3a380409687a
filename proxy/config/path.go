package config

// Path brings the path of each request into one form before a route is looked for. The service
// gets that form. It applies to HTTP listeners without a fixed service, and only if a route has
// a condition on the path.
type Path struct {
	// Decodes escapes of unreserved characters and removes dot segments. Disguised dot segments and malformed escapes: 400 `bad-path`.
	Normalize bool `yaml:"normalize"`
	// Merges slashes that follow each other.
	MergeSlashes bool `yaml:"merge_slashes"`
	// `%2F`, `%5C` and `\` in a path: 400 `bad-path`, a `/` instead, or no change.
	EscapedSlashes string `yaml:"escaped_slashes" oneof:"reject unescape keep"`
}

// DefaultPath returns the path settings of a listener that sets none: no request reaches a
// service by a path that the service reads as another one.
func DefaultPath() Path { return withDefaults[Path]() }

func (p *Path) setDefaults() {
	*p = Path{Normalize: true, MergeSlashes: true, EscapedSlashes: SlashesReject}
}

// What becomes of escaped slashes.
const (
	SlashesReject   = "reject"   // the request gets 400
	SlashesUnescape = "unescape" // they are slashes
	SlashesKeep     = "keep"     // they are no slashes
)

// check refuses the settings of a listener that looks at no paths.
func (p *Path) check(in scope, at path) {
	l := in.listener
	in.refuseIf((l.Protocol != ProtocolHTTP || l.Service != "") && *p != DefaultPath(), at, "only an http listener without a service looks at paths")
}
