package stats

// ProbeCounts count probes for load: as a consumer those that were sent, as a provider those that were answered.
type ProbeCounts struct {
	Sent     uint64
	Answers  uint64 // that came
	Answered uint64 // for other sidecars
	Dropped  uint64 // not sent, or not answered, because earlier output waited
	Waits    uint64 // requests that waited for answers
	InVain   uint64 // of these, requests for which too few answers came in time
}

// Add adds o to c.
func (c *ProbeCounts) Add(o *ProbeCounts) {
	c.Sent += o.Sent
	c.Answers += o.Answers
	c.Answered += o.Answered
	c.Dropped += o.Dropped
	c.Waits += o.Waits
	c.InVain += o.InVain
}
