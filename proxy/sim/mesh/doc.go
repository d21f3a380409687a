// Package mesh runs a whole mesh on the simulator: consumers (callers, and a
// complete sidecar beside them), providers (a complete sidecar, and an emulated
// application behind it), and a registry whose snapshots arrive with a delay. All of it
// runs in one goroutine, on virtual time, and follows from one seed. Package proxytest is for
// tests that drive a mesh call by call.
//
// A Spec describes the mesh, its load and its faults. A Scenario is a Spec with
// expectations, read from a script. The scripts of this repository are in
// proxy/sim/testdata, whose README says how to write one. Random makes a Spec of a
// seed.
//
//	scenario, err := mesh.Load("one-slow-replica.scenario")
//	result := mesh.Run(scenario.Full.Spec)
//	for _, o := range scenario.Judge(result, nil) {
//		fmt.Println(o.Holds, o.Summary)
//	}
//
// Each run checks the invariants of invariants.go, whatever the Spec.
//
//	spec.go       what a Spec says; event.go faults, random.go random Specs
//	scenario.go   a script: its lines in statement.go and words.go, its expectations in expect.go
//	run.go        one run; sidecar.go, app.go, caller.go and registry.go are who takes part
//	faults.go     events happen
//	journal.go    what callers and applications saw; sampler.go what replicas did
//	result.go     what a run came to
//	*.go          the rest is protocols of callers and applications
package mesh
