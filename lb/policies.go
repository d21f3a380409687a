package lb

// Policies is the list of all policies, by their name in the setting lb.policy.
var Policies = map[string]Policy{
	"least_pending":        LeastPending{},
	"weighted_round_robin": WeightedRoundRobin{},
	"peak_ewma":            PeakEWMA{},
	"random":               Random{},
	"consistent_hash":      ConsistentHash{},
}
