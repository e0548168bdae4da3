package node

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"
	"airflow-kubernetes-callbacks.invalid/cluster/internal/cri"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// machine answers the kubelet's questions about the machine, for which a real
// kubelet has cAdvisor. The answers come from the configuration: the node can
// be larger than the machine.
type machine struct {
	state   string
	cores   int
	memory  uint64
	storage uint64
	runtime *cri.Runtime
}

var _ cadvisor.Interface = &machine{}

func newMachine(c *config.Config, r *cri.Runtime) (*machine, error) {
	memory, err := resource.ParseQuantity(c.Capacity.Memory)
	if err != nil {
		return nil, fmt.Errorf("capacity.memory: %w", err)
	}
	storage, err := resource.ParseQuantity(c.Capacity.EphemeralStorage)
	if err != nil {
		return nil, fmt.Errorf("capacity.ephemeral_storage: %w", err)
	}
	return &machine{c.State, c.Capacity.CPU, uint64(memory.Value()), uint64(storage.Value()), r}, nil
}

func (m *machine) Start() error { return nil }

func (m *machine) MachineInfo(klog.Logger) (*cadvisorapi.MachineInfo, error) {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return &cadvisorapi.MachineInfo{
		NumCores: m.cores, MemoryCapacity: m.memory,
		MachineID: "local", SystemUUID: "local", BootID: strings.TrimSpace(string(boot)),
	}, nil
}

func (m *machine) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return &cadvisorapi.VersionInfo{KernelVersion: strings.TrimSpace(string(release)), ContainerOsVersion: runtime.GOOS}, nil
}

// ContainerInfoV2 knows only the root cgroup. Its memory is plentiful, except
// when the runtime wants the kubelet to evict a pod.
func (m *machine) ContainerInfoV2(string, cadvisorapi.RequestOptions) (map[string]cadvisorapi.ContainerInfo, error) {
	used := m.memory / 100
	if m.runtime.UnderPressure() {
		used = m.memory - 50<<20
	}
	return map[string]cadvisorapi.ContainerInfo{"/": {
		Spec: cadvisorapi.ContainerSpec{HasMemory: true, Memory: cadvisorapi.MemorySpec{Limit: m.memory}},
		Stats: []*cadvisorapi.ContainerStats{{
			Timestamp: time.Now(),
			Memory:    &cadvisorapi.MemoryStats{Usage: used, WorkingSet: used, RSS: used},
		}},
	}}, nil
}

func (m *machine) GetRequestedContainersInfo(string, cadvisorapi.RequestOptions) (map[string]*cadvisorapi.ContainerInfo, error) {
	return map[string]*cadvisorapi.ContainerInfo{}, nil
}

func (m *machine) fileSystem() (cadvisorapi.FsInfo, error) {
	inodes := uint64(1 << 24)
	return cadvisorapi.FsInfo{
		Timestamp: time.Now(), Device: "local", Mountpoint: m.state,
		Capacity: m.storage, Available: m.storage, Inodes: &inodes, InodesFree: &inodes,
	}, nil
}

func (m *machine) ImagesFsInfo(context.Context) (cadvisorapi.FsInfo, error) { return m.fileSystem() }

func (m *machine) ContainerFsInfo(context.Context) (cadvisorapi.FsInfo, error) { return m.fileSystem() }

func (m *machine) RootFsInfo() (cadvisorapi.FsInfo, error) { return m.fileSystem() }

func (m *machine) GetDirFsInfo(string) (cadvisorapi.FsInfo, error) { return m.fileSystem() }

// containerManager is the one for machines without cgroups, except that it
// knows how much storage there is.
type containerManager struct {
	cm.ContainerManager
	storage corev1.ResourceList
}

func newContainerManager(m *machine) cm.ContainerManager {
	return containerManager{cm.NewStubContainerManager(), corev1.ResourceList{
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(m.storage), resource.BinarySI),
	}}
}

func (c containerManager) GetCapacity(klog.Logger, bool) corev1.ResourceList { return c.storage }
