// Package docs has the pages that the binary carries.
package docs

import _ "embed"

// Schema is the JSON Schema of configuration files. go generate ./proxy/config writes it.
//
//go:embed remora.schema.json
var Schema []byte
