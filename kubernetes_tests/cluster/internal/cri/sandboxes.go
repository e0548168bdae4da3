package cri

import (
	"context"
	"fmt"
	"os"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is what the containers of one pod share: here only an address.
type sandbox struct {
	id        string
	config    *runtimeapi.PodSandboxConfig
	createdAt int64
	ready     bool
	address   string
}

// RunPodSandbox makes a sandbox. Each gets its own loopback address, on which
// its containers may listen.
func (r *Runtime) RunPodSandbox(_ context.Context, c *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &sandbox{id: newID(), config: c, createdAt: now(), ready: true, address: config.Address}
	options := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetNetwork() != runtimeapi.NamespaceMode_NODE {
		r.addresses++
		n := r.addresses
		s.address = fmt.Sprintf("127.%d.%d.%d", 10+n/64516%200, n/254%254, 1+n%254)
	}
	r.sandboxes[s.id] = s
	return s.id, s.save(r.config)
}

// StopPodSandbox ends what still runs in it.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	r.mu.Lock()
	s := r.sandboxes[id]
	var members []*container
	for _, c := range r.containers {
		if c.sandbox == s {
			members = append(members, c)
		}
	}
	r.mu.Unlock()
	if s == nil {
		return nil
	}
	for _, c := range members {
		if err := c.stop(ctx, 0); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.ready = false
	return s.save(r.config)
}

// RemovePodSandbox forgets a sandbox and its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.sandbox.id == id {
			r.forget(c)
		}
	}
	if s := r.sandboxes[id]; s != nil {
		os.Remove(s.recordPath(r.config))
		delete(r.sandboxes, id)
	}
	return nil
}

// PodSandboxStatus describes one sandbox.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil, notFound("sandbox", id)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.createdAt,
		Network:     &runtimeapi.PodSandboxNetworkStatus{Ip: s.address},
		Linux:       &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels:      s.config.Labels,
		Annotations: s.config.Annotations,
	}}, nil
}

// ListPodSandbox lists the sandboxes that match the filter.
func (r *Runtime) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtimeapi.PodSandbox
	for _, s := range r.sandboxes {
		if filter.GetId() != "" && filter.GetId() != s.id ||
			filter.GetState() != nil && filter.GetState().State != s.state() ||
			!matchesLabels(s.config.Labels, filter.GetLabelSelector()) {
			continue
		}
		list = append(list, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.createdAt,
			Labels: s.config.Labels, Annotations: s.config.Annotations,
		})
	}
	return list, nil
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}
