// Package lab has the parts of the lab binary (cmd/remora-lab): all that is needed to see
// Remora work on one machine with nothing installed.
//
//   - lab/replica: an emulated replica that freezes now and then, or a Dubbo provider;
//   - lab/history: whether sidecars made of a registry what it had; lab/history/record records that;
//   - lab/feature: the keys and the store of a feature service;
//   - lab/consumer: a service that calls a Dubbo provider through its sidecar;
//   - lab/load: a load generator that measures from the intended send time;
//   - lab/report: tables, charts, JSON and HTML of measurements;
//   - lab/child: the processes of demo and bench;
//   - lab/demo: embedded etcd, replicas, sidecars and load put together;
//   - lab/bench: what the sidecar costs beside other proxies, and its tail of latency;
//   - lab/steal: moments in which the machine itself stands still;
//   - lab/server: the connections of the lab's servers, on netpoll;
//   - lab/precise: sleeps that are more precise than Go's timers.
//
// Nothing in the sidecar imports it.
package lab
