package protocol

// Limits bound the memory of one message of a peer. They are literal: 0 allows nothing.
type Limits struct {
	Header  int   // bytes of a head with its first and its empty line, or of a trailer section
	Headers int   // field lines of a head, or of a trailer section
	Message int64 // bytes of a body without its framing
}

// NoLimit is the value of Limits.Message for bodies that are streamed.
const NoLimit = 1 << 62
