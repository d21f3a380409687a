package config

import (
	"cmp"
	"iter"
	"reflect"
	"slices"
)

// Blocks are the sections that features bring to a part of the file, by their keys: pointers to
// structs. The file of the feature declares its block, and no other file of this package names it.
type Blocks map[string]any

// blockType is a block that a feature has declared.
type blockType struct {
	key string
	of  reflect.Type
}

// declared has the blocks of each part of the file, sorted by their keys.
var declared = map[reflect.Type][]blockType{}

// declareBlock gives a part of the file a block. section points to any value of the block's type. An init function
// calls declareBlock, as the blocks must be known before the first file is read.
func declareBlock[Part any](key string, section any) {
	part, of := reflect.TypeFor[Part](), reflect.TypeOf(section).Elem()
	declared[part] = append(declared[part], blockType{key, of})
	slices.SortFunc(declared[part], func(a, b blockType) int { return cmp.Compare(a.key, b.key) })
	knownFields[part] = findFields(part)
	addFields(knownFields, of)
}

// defaultBlocks returns all blocks of a part, with their defaults.
func defaultBlocks[Part any]() Blocks {
	all := Blocks{}
	for _, b := range declared[reflect.TypeFor[Part]()] {
		section := reflect.New(b.of)
		setDefaults(section.Elem())
		all[b.key] = section.Interface()
	}
	return all
}

// block returns the block of type T. A Route or Registry of a Go literal has no blocks: it gets an empty one.
func block[T any](all Blocks) *T {
	for _, section := range all {
		if b, ok := section.(*T); ok {
			return b
		}
	}
	return new(T)
}

// each yields the values in a part that are an S, by their keys.
func each[S any](part reflect.Value) iter.Seq2[string, S] {
	return func(yield func(string, S) bool) {
		for _, f := range fieldsOf(part.Type()) {
			if s, ok := f.value(part).Addr().Interface().(S); ok && !yield(f.name, s) {
				return
			}
		}
	}
}
