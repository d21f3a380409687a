package dubbo

// Invocation is what routing needs of a call. Its slices alias the body that it
// was read from; they are nil where the caller gave null or nothing.
type Invocation struct {
	DubboVersion []byte // version of the caller's protocol, such as 2.0.2
	Path         []byte // service as the provider exports it, the interface nearly always
	Version      []byte // of the service; nil also for 0.0.0, which means none
	Method       []byte
	Types        []byte // JVM descriptors of the parameters, concatenated
	Group        []byte // of the service
	Timeout      []byte // milliseconds in decimal, as the caller gave them
}

// Parse reads the body of a request. The arguments are skipped, and checked no
// further than finding what follows them takes.
func (inv *Invocation) Parse(serialization byte, body []byte) error {
	*inv = Invocation{}
	switch serialization {
	}
	return ErrSerialization
}
