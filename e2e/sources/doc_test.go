// Package sources runs a sidecar whose endpoints are in real sources, while a hundred replicas come and go, and while the
// source itself is killed, cut off, frozen and wiped. All that is under load, and no request may fail.
//
// scripts/sources.sh runs the long form. It brings a Kubernetes API server, and a network namespace with addresses for the
// replicas that are not those of the loopback interface: Kubernetes has no others.
//
//	sources_test.go     the list of sources
//	replicas_test.go    replicas and load
//	churn_test.go       replicas come and go
//	faults_test.go      faults of sources
//	many_test.go        a thousand services
//	etcd_test.go        a cluster of three etcds
//	kubernetes_test.go  an API server
//	names_test.go       a name server
//	inject_test.go      what "remora inject" writes, sent to an API server
package sources
