package zktest

import (
	"maps"
	"path"
	"slices"
	"time"
)

// tree has the nodes. The caller holds the mutex of the Server.
type tree struct {
	nodes    map[string]*node
	below    map[string]map[string]bool // names of children, by path
	sessions map[int64]*session
	zxid     int64
	lastID   int64
	data     map[string]map[*conn]struct{} // watches of nodes, by path
	children map[string]map[*conn]struct{} // watches of children
}

type node struct {
	data    []byte
	version int32
	owner   int64
	user    string // who may read and write it; "" means everyone
}

type session struct {
	timeout time.Duration
	heard   time.Time
}

// Types of events.
const (
	created         = 1
	deleted         = 2
	dataChanged     = 3
	childrenChanged = 4
)

// wipe keeps only the count of sessions, so that each has an id of its own.
func (t *tree) wipe() {
	*t = tree{
		nodes: map[string]*node{"/": {}}, below: make(map[string]map[string]bool), sessions: make(map[int64]*session), lastID: t.lastID,
		data: make(map[string]map[*conn]struct{}), children: make(map[string]map[*conn]struct{}),
	}
}

func (t *tree) create(at string, data []byte, owner int64, user string) {
	t.zxid++
	t.nodes[at] = &node{data: data, owner: owner, user: user}
	dir, name := path.Dir(at), path.Base(at)
	if t.below[dir] == nil {
		t.below[dir] = make(map[string]bool)
	}
	t.below[dir][name] = true
	fire(t.data, at, created)
	fire(t.children, path.Dir(at), childrenChanged)
}

func (t *tree) delete(at string) {
	t.zxid++
	delete(t.nodes, at)
	delete(t.below[path.Dir(at)], path.Base(at))
	fire(t.data, at, deleted)
	fire(t.children, at, deleted)
	fire(t.children, path.Dir(at), childrenChanged)
}

func (t *tree) set(at string, data []byte) {
	t.zxid++
	t.nodes[at].data = data
	t.nodes[at].version++
	fire(t.data, at, dataChanged)
}

// childrenOf returns names.
func (t *tree) childrenOf(at string) []string { return slices.Collect(maps.Keys(t.below[at])) }

func (t *tree) endSession(id int64) {
	delete(t.sessions, id)
	for _, p := range slices.Collect(maps.Keys(t.nodes)) {
		if t.nodes[p].owner == id {
			t.delete(p)
		}
	}
}

func watch(all map[string]map[*conn]struct{}, at string, c *conn) {
	if all[at] == nil {
		all[at] = make(map[*conn]struct{})
	}
	all[at][c] = struct{}{}
}

func fire(all map[string]map[*conn]struct{}, at string, event int32) {
	for c := range all[at] {
		var w writer
		w.int32(-1)
		w.int64(-1)
		w.int32(0)
		w.int32(event)
		w.int32(3) // connected
		w.text(at)
		c.send(w)
	}
	delete(all, at)
}

// forget removes the watches of a connection.
func (t *tree) forget(c *conn) {
	for _, all := range []map[string]map[*conn]struct{}{t.data, t.children} {
		for _, conns := range all {
			delete(conns, c)
		}
	}
}
