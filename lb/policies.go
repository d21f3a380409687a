package lb

// NamedPolicy is a policy, and its name in the setting lb.policy.
type NamedPolicy struct {
	Name   string
	Policy Policy
}

// Policies is the list of all policies. Errors name policies in this order.
var Policies = []NamedPolicy{
	{"least_pending", LeastPending{}},
	{"weighted_round_robin", WeightedRoundRobin{}},
	{"peak_ewma", PeakEWMA{}},
	{"random", Random{}},
	{"consistent_hash", ConsistentHash{}},
}

// PolicyNames returns the names of all policies.
func PolicyNames() []string {
	names := make([]string, len(Policies))
	for i, p := range Policies {
		names[i] = p.Name
	}
	return names
}

// PolicyOf returns the policy with a name; nil means that there is none.
func PolicyOf(name string) Policy {
	for _, p := range Policies {
		if p.Name == name {
			return p.Policy
		}
	}
	return nil
}
