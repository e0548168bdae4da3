package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/enter"
)

// sweep waits until the supervisor is gone, however it ended, and kills what
// carries the cluster's mark. Children of containers are not children of the
// node, so the kernel does not end them with it.
func sweep(state string) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	io.Copy(io.Discard, os.Stdin)
	enter.Marks{State: state}.Kill(10 * time.Second)
}
