package config

// Endpoint is a static endpoint. In the file it may be plain "host:port".
type Endpoint struct {
	// `host:port`, `unix:/path` or `unix:@name`, for `discover: static`. An endpoint may be this text alone. Host names are resolved again.
	Address string `yaml:"address"`
	// Capacity relative to an endpoint of weight 1.
	Weight int `yaml:"weight" min:"1" max:"65535"`
	// Zone of the endpoint.
	Zone string `yaml:"zone"`
}

// defaultProtocol returns what the endpoints of a source speak if the file does not say so. Those
// that a file lists are mostly applications, those in a registry mostly sidecars.
func defaultProtocol(discover string) string {
	if discover == DiscoverStatic {
		return ProtocolHTTP
	}
	return ProtocolLink
}
