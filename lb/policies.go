package lb

// Policies is the list of all policies, by the name that lb.policy has in the
// configuration.
var Policies = map[string]Policy{
	"least_pending":        LeastPending{},
	"weighted_round_robin": WeightedRoundRobin{},
	"peak_ewma":            PeakEWMA{},
	"random":               Random{},
}
