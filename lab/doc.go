// Package lab is what the lab binary (cmd/remora-lab) is made of: everything
// that is needed to see Remora work on one machine with nothing installed.
//
//   - lab/replica: an emulated replica of a feature service, fast nearly always
//     and frozen now and then, or a Dubbo provider with a fixed pool;
//   - lab/consumer: a service that calls a Dubbo provider through its sidecar and
//     checks the answers;
//   - lab/load: an open-loop load generator that measures from the intended send
//     time;
//   - lab/report: tables, plots for terminals and pages, JSON and HTML of what was
//     measured;
//   - lab/child: the processes of what follows;
//   - lab/demo: embedded etcd, replicas, sidecars and load put together;
//   - lab/bench: what the sidecar costs, beside other proxies;
//   - lab/steal: when the machine itself stands still, and measures nothing well;
//   - lab/precise: sleeping more precisely than Go's timers do.
//
// Nothing in the sidecar imports it.
package lab
