package protocol

// Limits bound what a peer may make us hold for one message. They are taken
// literally: zero allows nothing.
type Limits struct {
	Header  int   // bytes of a head, its first and its empty line included; also of a trailer section
	Headers int   // field lines of a head; also of a trailer section
	Message int64 // bytes of a body, framing not counted
}

// NoLimit as Limits.Message is for bodies that are passed on as they come.
const NoLimit = 1 << 62
