package cri

import (
	"context"
	"io/fs"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pressure is a shortage of memory that is only said to exist, so that the
// kubelet evicts one certain pod.
type pressure struct {
	namespace, pod string
	until          time.Time
}

// pretendedUsage is what the pod under pressure is said to use.
const pretendedUsage = 1 << 40

// Evict makes the node look short of memory because of this pod, until the pod's
// containers have ended. The kubelet looks every ten seconds.
func (r *Runtime) Evict(namespace, pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pressure = &pressure{namespace, pod, time.Now().Add(time.Minute)}
}

// UnderPressure says whether the node shall look short of memory.
func (r *Runtime) UnderPressure() bool {
	r.mu.Lock()
	p := r.pressure
	r.mu.Unlock()
	if p == nil {
		return false
	}
	if time.Now().Before(p.until) {
		for _, c := range r.list() {
			if p.concerns(c) && c.runningPID() != 0 {
				return true
			}
		}
	}
	r.mu.Lock()
	r.pressure = nil
	r.mu.Unlock()
	return false
}

func (p *pressure) concerns(c *container) bool {
	return p != nil && c.sandbox.config.Metadata.Namespace == p.namespace && c.sandbox.config.Metadata.Name == p.pod
}

// ListContainerStats says what the running containers use.
func (r *Runtime) ListContainerStats(_ context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	r.mu.Lock()
	p := r.pressure
	r.mu.Unlock()
	sessions := readSessions()
	var list []*runtimeapi.ContainerStats
	for _, c := range r.list() {
		pid := c.runningPID()
		if pid == 0 || filter.GetId() != "" && filter.GetId() != c.id ||
			filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox.id ||
			!matchesLabels(c.config.Labels, filter.GetLabelSelector()) {
			continue
		}
		used := sessions[pid].resident
		if p.concerns(c) {
			used = pretendedUsage
		}
		list = append(list, c.stats(used))
	}
	return list, nil
}

func (c *container) stats(memory uint64) *runtimeapi.ContainerStats {
	at := now()
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations},
		Cpu:        &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{}, UsageNanoCores: &runtimeapi.UInt64Value{}},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp: at, WorkingSetBytes: &runtimeapi.UInt64Value{Value: memory},
			UsageBytes: &runtimeapi.UInt64Value{Value: memory}, RssBytes: &runtimeapi.UInt64Value{Value: memory},
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: at, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: c.runtime.config.State},
			UsedBytes: &runtimeapi.UInt64Value{Value: folderSize(filepath.Join(c.dir, "work"))}, InodesUsed: &runtimeapi.UInt64Value{},
		},
	}
}

func folderSize(dir string) uint64 {
	var size uint64
	filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				size += uint64(info.Size())
			}
		}
		return nil
	})
	return size
}

// ContainerStats says what one container uses.
func (r *Runtime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	list, err := r.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{Id: id})
	if err != nil || len(list) == 0 {
		return nil, notFound("container", id)
	}
	return list[0], nil
}

// The kubelet adds the containers' use up itself.
func (r *Runtime) PodSandboxStats(context.Context, string) (*runtimeapi.PodSandboxStats, error) {
	return nil, unimplemented("statistics of sandboxes")
}

func (r *Runtime) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return nil, unimplemented("statistics of sandboxes")
}

func (r *Runtime) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, nil
}

func (r *Runtime) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, nil
}
