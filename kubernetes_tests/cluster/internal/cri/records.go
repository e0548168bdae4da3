package cri

import (
	"encoding/json"
	"os"
	"path/filepath"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A runtime remembers its containers on disk, as containerd does, so that after
// the loss of a node they are known to have existed. Otherwise the kubelet would
// take their pods for new ones and run them a second time.

type sandboxRecord struct {
	ID        string
	Config    *runtimeapi.PodSandboxConfig
	CreatedAt int64
	Address   string
}

type containerRecord struct {
	ID, SandboxID, Image             string
	Config                           *runtimeapi.ContainerConfig
	State                            runtimeapi.ContainerState
	CreatedAt, StartedAt, FinishedAt int64
	ExitCode                         int32
	Reason, Message                  string
}

func (s *sandbox) recordPath(c *config.Config) string {
	return c.Path("sandboxes", s.id[:16]+".json")
}

func (s *sandbox) save(c *config.Config) error {
	return writeRecord(s.recordPath(c), sandboxRecord{s.id, s.config, s.createdAt, s.address})
}

// save needs c.mu, or a container that nobody else knows yet.
func (c *container) save() error {
	return writeRecord(filepath.Join(c.dir, "record.json"), containerRecord{
		ID: c.id, SandboxID: c.sandbox.id, Image: c.image.Pattern, Config: c.config, State: c.state,
		CreatedAt: c.createdAt, StartedAt: c.startedAt, FinishedAt: c.finishedAt,
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
	})
}

func writeRecord(path string, record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// load reads the records of an earlier runtime. What ran then has ended, in a
// way that nobody saw: containerd says so with code 255 and reason "Unknown".
func (r *Runtime) load() error {
	if err := os.MkdirAll(r.config.Path("sandboxes"), 0o755); err != nil {
		return err
	}
	files, _ := filepath.Glob(r.config.Path("sandboxes", "*.json"))
	for _, file := range files {
		var record sandboxRecord
		if err := readRecord(file, &record); err != nil {
			return err
		}
		r.sandboxes[record.ID] = &sandbox{id: record.ID, config: record.Config, createdAt: record.CreatedAt, address: record.Address}
		r.addresses++
	}
	files, _ = filepath.Glob(r.config.Path("containers", "*", "record.json"))
	for _, file := range files {
		var record containerRecord
		if err := readRecord(file, &record); err != nil {
			return err
		}
		s := r.sandboxes[record.SandboxID]
		if s == nil {
			os.RemoveAll(filepath.Dir(file))
			continue
		}
		c := &container{
			runtime: r, id: record.ID, sandbox: s, config: record.Config, image: &config.Image{Pattern: record.Image},
			dir: filepath.Dir(file), createdAt: record.CreatedAt, state: record.State,
			startedAt: record.StartedAt, finishedAt: record.FinishedAt,
			exitCode: record.ExitCode, reason: record.Reason, message: record.Message,
			exited: make(chan struct{}),
		}
		if c.state != runtimeapi.ContainerState_CONTAINER_EXITED {
			c.state = runtimeapi.ContainerState_CONTAINER_EXITED
			c.finishedAt, c.exitCode, c.reason = now(), 255, "Unknown"
			c.save()
		}
		close(c.exited)
		r.containers[c.id] = c
	}
	return nil
}

func readRecord(file string, record any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, record)
}
