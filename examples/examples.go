// Package examples holds the manifests that the demo runs on, the same files
// that a reader finds in this folder.
package examples

import "embed"

// FS has the manifests of this folder, as they are.
//
//go:embed *.yaml
var FS embed.FS
