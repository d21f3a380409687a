package session

import "context"

// Numbers of requests, from ZooDefs.OpCode.
const (
	opCreate   = 1
	opDelete   = 2
	opExists   = 3
	opGetData  = 4
	opSetData  = 5
	opChildren = 8
	opPing     = 11
	opMulti    = 14
	opAuth     = 100
	opClose    = -11
)

// The requests below return a Code if the server refuses them, ErrLost if the connection ends before the response, and the
// error of ctx. After ErrLost or the error of ctx it is unknown whether the server has done what it was asked for.

// Children returns the names of a node's children, in any order. With watch, the Handler is told of the first change after
// the response, unless the response is an error. A server forgets watches when the connection ends.
func (s *Session) Children(ctx context.Context, path string, watch bool) ([]string, error) {
	d, err := s.do(ctx, opChildren, func(e *encoder) { e.text(path); e.bool(watch) })
	if err != nil {
		return nil, err
	}
	names := d.texts()
	return names, d.err
}

// Get returns the data of a node, which the caller owns. watch is as for Children.
func (s *Session) Get(ctx context.Context, path string, watch bool) ([]byte, error) {
	d, err := s.do(ctx, opGetData, func(e *encoder) { e.text(path); e.bool(watch) })
	if err != nil {
		return nil, err
	}
	data := d.bytes()
	return data, d.err
}

// Exists returns the Stat of a node. watch is as for Children, but the watch is set after NoNode, too: then the Handler is
// told that the node was made.
func (s *Session) Exists(ctx context.Context, path string, watch bool) (Stat, error) {
	return s.statOf(s.do(ctx, opExists, func(e *encoder) { e.text(path); e.bool(watch) }))
}

// Set replaces the data of a node of any version, and returns the Stat after that.
func (s *Session) Set(ctx context.Context, path string, data []byte) (Stat, error) {
	return s.statOf(s.do(ctx, opSetData, func(e *encoder) { e.text(path); e.bytes(data); e.int32(anyVersion) }))
}

func (s *Session) statOf(d decoder, err error) (Stat, error) {
	if err != nil {
		return Stat{}, err
	}
	st := d.stat()
	return st, d.err
}

// anyVersion as the version of a node means any.
const anyVersion = -1

// Create makes a node. An ephemeral node ends with the session.
func (s *Session) Create(ctx context.Context, path string, data []byte, ephemeral bool) error {
	_, err := s.do(ctx, opCreate, func(e *encoder) { s.create(e, path, data, ephemeral) })
	return err
}

// Delete deletes a node that has no children, if its data has this version.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	_, err := s.do(ctx, opDelete, func(e *encoder) { e.text(path); e.int32(version) })
	return err
}

// Replace deletes a node of this version, and makes an ephemeral one of this session in its place. Nobody sees the time between.
func (s *Session) Replace(ctx context.Context, path string, version int32, data []byte) error {
	d, err := s.do(ctx, opMulti, func(e *encoder) {
		multiHeader(e, opDelete, false)
		e.text(path)
		e.int32(version)
		multiHeader(e, opCreate, false)
		s.create(e, path, data, true)
		multiHeader(e, -1, true)
	})
	if err != nil {
		return err
	}
	for {
		op, isDone := d.int32(), d.bool()
		d.int32() // the code that a failure has in its body, too
		switch {
		case d.err != nil || isDone:
			return d.err
		case op == -1: // the failure of one, for which the others fail, too
			if code := Code(d.int32()); code != 0 && code != otherFailed {
				return code
			}
		case op == opCreate:
			d.bytes() // its path
		}
	}
}

// otherFailed is the Code of an operation of a multi-operation that another one made fail.
const otherFailed Code = -2

func multiHeader(e *encoder, op int32, isDone bool) {
	e.int32(op)
	e.bool(isDone)
	e.int32(-1)
}

// Flags of a create, and all permissions of an ACL.
const (
	flagPersistent = 0
	flagEphemeral  = 1
	permAll        = 31
)

// create encodes the creation of a node. As Dubbo does, it gives all permissions to everyone, or, if the session has
// credentials, to whoever has these.
func (s *Session) create(e *encoder, path string, data []byte, ephemeral bool) {
	e.text(path)
	e.bytes(data)
	scheme, id, flags := "world", "anyone", int32(flagPersistent)
	if s.opt.Username != "" {
		scheme, id = "auth", ""
	}
	if ephemeral {
		flags = flagEphemeral
	}
	e.int32(1)
	e.int32(permAll)
	e.text(scheme)
	e.text(id)
	e.int32(flags)
}
