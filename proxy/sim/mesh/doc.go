// Package mesh runs a whole mesh on the simulator: consumers (callers, and a
// complete sidecar beside them), providers (a complete sidecar, and an emulated
// application behind it), and a registry whose news takes its time. All of it is
// in one goroutine, on virtual time, and follows from one seed.
//
// A Spec says what the mesh is and what happens to it. A Scenario is a Spec and
// what is expected of it, read from a script; those of this repository are in
// proxy/sim/testdata, and docs/simulation.md says how to write one. Random draws
// a Spec from a seed.
//
//	scenario, err := mesh.Load("one-slow-replica.scenario")
//	result := mesh.Run(scenario.Full.Spec)
//	for _, o := range scenario.Judge(result, nil) {
//		fmt.Println(o.Holds, o.Summary)
//	}
//
// Whatever the Spec, a run checks what must hold always (see invariants.go).
package mesh
