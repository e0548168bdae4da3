// Package enter is what the node and the program that starts a container say
// to each other. That program is small on purpose: it runs once per container,
// between fork and exec.
package enter

// Request is written by the node to file descriptor RequestFD.
type Request struct {
	// Args and Env are those of the container's process.
	Args []string
	Env  []string
	// Dir is its working directory; it is made when it does not exist.
	Dir string
	// Mounts are bound in a private mount namespace when Namespaces is set.
	Mounts     []Mount
	Namespaces bool
	// Root is an empty folder on which the new root is put together.
	Root string
}

// Mount is a bind mount.
type Mount struct {
	Source   string
	Target   string
	ReadOnly bool
}

const (
	// RequestFD is where the program reads its request.
	RequestFD = 3
	// ErrorFD is where it says why the container could not be started. It is
	// closed by a successful exec.
	ErrorFD = 4
	// ContainerVariable marks the processes of a container, so that those that
	// left its session are found.
	ContainerVariable = "LOCAL_CLUSTER_CONTAINER"
	// StateVariable marks every process of a cluster with its state folder.
	StateVariable = "LOCAL_CLUSTER_STATE"
)
