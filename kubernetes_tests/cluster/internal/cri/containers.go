package cri

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// container is a container from its creation until it is removed.
type container struct {
	runtime *Runtime
	id      string
	sandbox *sandbox
	config  *runtimeapi.ContainerConfig
	image   *config.Image
	// dir holds the scratch folder that stands for the writable layer.
	dir       string
	createdAt int64

	mu         sync.Mutex
	state      runtimeapi.ContainerState
	startedAt  int64
	finishedAt int64
	exitCode   int32
	reason     string
	message    string
	pid        int
	oomKilled  bool
	log        *logFile
	// exited is closed when the last process of the container is gone.
	exited chan struct{}
}

// CreateContainer prepares a container.
func (r *Runtime) CreateContainer(_ context.Context, sandboxID string, c *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[sandboxID]
	if s == nil {
		return "", notFound("sandbox", sandboxID)
	}
	image := findImage(r.config, c.GetImage().GetUserSpecifiedImage())
	if image == nil {
		image = findImage(r.config, c.GetImage().GetImage())
	}
	if image == nil {
		return "", notFound("image", c.GetImage().GetImage())
	}
	if len(commandLine(image, c)) == 0 {
		return "", errNoCommand
	}
	id := newID()
	created := &container{
		runtime: r, id: id, sandbox: s, config: c, image: image, createdAt: now(),
		dir:    r.config.Path("containers", id[:16]),
		state:  runtimeapi.ContainerState_CONTAINER_CREATED,
		exited: make(chan struct{}),
	}
	for _, name := range []string{"work", "root"} {
		if err := os.MkdirAll(filepath.Join(created.dir, name), 0o755); err != nil {
			return "", err
		}
	}
	r.containers[id] = created
	return id, created.save()
}

// commandLine applies the rules of command, args, ENTRYPOINT and CMD:
// https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/
func commandLine(image *config.Image, c *runtimeapi.ContainerConfig) []string {
	command, args := c.Command, c.Args
	if len(command) == 0 {
		command = image.Entrypoint
		if len(args) == 0 {
			args = image.Command
		}
	}
	return append(append([]string{}, command...), args...)
}

// StartContainer starts the container's process. A container that cannot be
// started has ended with code 128, as with containerd.
func (r *Runtime) StartContainer(_ context.Context, id string) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	return c.start()
}

// StopContainer ends a container: SIGTERM, and SIGKILL after the timeout.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	c, err := r.container(id)
	if err != nil {
		return nil
	}
	return c.stop(ctx, time.Duration(timeout)*time.Second)
}

// RemoveContainer ends and forgets a container. Its log is the kubelet's.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	c, err := r.container(id)
	if err != nil {
		return nil
	}
	if err := c.stop(ctx, 0); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(c)
	return nil
}

// forget needs r.mu.
func (r *Runtime) forget(c *container) {
	os.RemoveAll(c.dir)
	delete(r.containers, c.id)
}

// ListContainers lists the containers that match the filter.
func (r *Runtime) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var list []*runtimeapi.Container
	for _, c := range r.list() {
		state := c.status().State
		if filter.GetId() != "" && filter.GetId() != c.id ||
			filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox.id ||
			filter.GetState() != nil && filter.GetState().State != state ||
			!matchesLabels(c.config.Labels, filter.GetLabelSelector()) {
			continue
		}
		list = append(list, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: c.config.Image,
			ImageRef: imageID(c.config.Image.Image), ImageId: imageID(c.config.Image.Image), State: state,
			CreatedAt: c.createdAt, Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	return list, nil
}

func (r *Runtime) list() []*container {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*container, 0, len(r.containers))
	for _, c := range r.containers {
		list = append(list, c)
	}
	return list
}

// ContainerStatus describes one container.
func (r *Runtime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := r.container(id)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

func (c *container) status() *runtimeapi.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := c.config.Image.Image
	if c.config.Image.UserSpecifiedImage != "" {
		name = c.config.Image.UserSpecifiedImage
	}
	return &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state,
		CreatedAt: c.createdAt, StartedAt: c.startedAt, FinishedAt: c.finishedAt,
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
		Image: &runtimeapi.ImageSpec{Image: name}, ImageRef: imageID(name), ImageId: imageID(name),
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts,
		LogPath: c.logPath(), Resources: &runtimeapi.ContainerResources{Linux: c.config.GetLinux().GetResources()},
	}
}

func (c *container) logPath() string {
	return filepath.Join(c.sandbox.config.LogDirectory, c.config.LogPath)
}

// ReopenContainerLog is called after the kubelet rotated the log.
func (r *Runtime) ReopenContainerLog(_ context.Context, id string) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	log := c.log
	c.mu.Unlock()
	if log == nil {
		return nil
	}
	return log.reopen()
}
