// Command cluster is a Kubernetes cluster on one machine, without containers
// and without root: etcd, the API server, the controller manager, the scheduler
// and one kubelet, whose containers are plain processes.
//
//	cluster serve STATE    runs the cluster that STATE/config.json describes
//
// The other programs are started by "serve" from this same file.
package main

import (
	"fmt"
	"os"
	"runtime"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"
	"airflow-kubernetes-callbacks.invalid/cluster/internal/node"
)

func init() {
	// main stays on the process's first thread (see supervisor.spawn).
	runtime.LockOSThread()
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: cluster serve STATE")
		os.Exit(2)
	}
	var err error
	switch name := os.Args[1]; name {
	case "serve":
		err = serve(os.Args[2])
	case nodeName:
		var c *config.Config
		if c, err = config.Load(os.Args[2]); err == nil {
			err = node.Run(c)
		}
	default:
		runComponent(name, os.Args[2:])
		err = fmt.Errorf("unknown program %q", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
