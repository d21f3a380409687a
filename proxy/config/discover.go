package config

import (
	"slices"
	"strings"
)

// Values of Service.Combine.
const (
	CombineFirst = "first" // the endpoints of the first source that has some
	CombineMerge = "merge" // those of all sources
)

// finds reports whether a source is one of those of the service.
func (s *Service) finds(source string) bool { return slices.Contains(s.Discover, source) }

// Finds reports whether a source is one of those of a service.
func (c *Config) Finds(source string) bool {
	for _, s := range c.Services {
		if s.finds(source) {
			return true
		}
	}
	return false
}

// isListed reports whether all endpoints of the service are in the file.
func (s *Service) isListed() bool { return len(s.Discover) == 1 && s.finds(DiscoverStatic) }

// checkSources checks the sources of the endpoints.
func (s *Service) checkSources(in scope, at path) {
	discover := at.key("discover")
	in.refuseIf(s.Combine == CombineMerge && len(s.Discover) < 2, at.key("combine"), "nothing to merge with %s alone", strings.Join(s.Discover, ""))
	if in.partly[discover] {
		return
	}
	for i, source := range s.Discover {
		of := discover
		if len(s.Discover) > 1 {
			of = discover.item(i)
		}
		in.refuseIf(slices.Contains(s.Discover[:i], source), of, "%s is listed twice", source)
		in.config.Registry.checkConfigured(in, of, source)
	}
}
