// The current etcd server, built from its Go module: `go install` of it refuses, because its go.mod
// has replacements.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
