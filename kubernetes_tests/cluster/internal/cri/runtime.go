// Package cri is a container runtime whose containers are processes of this
// machine. It implements the interfaces that the kubelet calls, the same ones
// behind which containerd stands: everything that is not about processes
// (phases, back-offs, probes, volumes, events, logs) is the kubelet's own code.
//
// Facts about runtimes (reasons, exit codes, messages, the log format) are those
// of containerd's CRI plugin and of
// https://github.com/kubernetes/cri-api/blob/master/pkg/apis/runtime/v1/api.proto.
package cri

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime holds the pod sandboxes and containers of one node.
type Runtime struct {
	config *config.Config
	// spawn starts a child on a thread that lives as long as this process.
	spawn func(*exec.Cmd) error
	// namespaces gives containers mount namespaces of their own; nil: they have none.
	namespaces Namespaces

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// started holds the processes that the node started and did not yet wait for.
	started   map[int]bool
	addresses int
	pressure  *pressure
}

var _ internalapi.RuntimeService = &Runtime{}

// New returns a runtime with the pods that an earlier one left behind. None of
// their processes is alive: a node's containers end with it.
func New(c *config.Config, spawn func(*exec.Cmd) error, namespaces Namespaces) (*Runtime, error) {
	r := &Runtime{
		config: c, spawn: spawn, namespaces: namespaces,
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		started: map[int]bool{},
	}
	if err := r.load(); err != nil {
		return nil, err
	}
	go r.watchMemory()
	return r, nil
}

func newID() string {
	id := make([]byte, 32)
	rand.Read(id)
	return hex.EncodeToString(id)
}

func now() int64 { return time.Now().UnixNano() }

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", kind, id)
}

func unimplemented(what string) error {
	return status.Errorf(codes.Unimplemented, "%s is not possible on this node", what)
}

// Version says who we are. The kubelet shows it as the node's runtime version.
func (r *Runtime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "local-process", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1",
	}, nil
}

// Status is always good: there is no daemon that could be down.
func (r *Runtime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

// RuntimeConfig says how cgroups are driven; there are none.
func (r *Runtime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{}, nil
}

// UpdateRuntimeConfig is told the pod network, which does not matter here.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

// Close has nothing to close.
func (r *Runtime) Close(context.Context) error { return nil }

// Exec, Attach and PortForward need a streaming server.
func (r *Runtime) Exec(context.Context, *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return nil, unimplemented("exec")
}

func (r *Runtime) Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return nil, unimplemented("attach")
}

func (r *Runtime) PortForward(context.Context, *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return nil, unimplemented("port-forward")
}

func (r *Runtime) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return unimplemented("checkpoint")
}

func (r *Runtime) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) error {
	return unimplemented("checkpoint")
}

func (r *Runtime) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, unimplemented("restore")
}

func (r *Runtime) GetContainerEvents(context.Context, chan *runtimeapi.ContainerEventResponse, func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	return unimplemented("an event stream")
}

// UpdateContainerResources and UpdatePodSandboxResources have no cgroup to change.
func (r *Runtime) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

func (r *Runtime) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

func (r *Runtime) container(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	return nil, notFound("container", id)
}

func matchesLabels(labels, selector map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

var errNoCommand = fmt.Errorf("failed to generate spec: no command specified")
