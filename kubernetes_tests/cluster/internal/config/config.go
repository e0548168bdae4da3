// Package config is the description of one cluster: what the launcher writes
// into the state folder and every program of the cluster reads.
package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Config is state/config.json.
type Config struct {
	// State is the folder that holds everything of this cluster.
	State string `json:"state"`
	// Enter is the small program that starts containers (see package enter).
	Enter string `json:"enter"`
	// APIServerPort is the API server's port; 0 chooses a free one.
	APIServerPort int `json:"apiserver_port"`
	// Capacity of the node.
	Capacity Capacity `json:"capacity"`
	// Images is the table of images that can be "pulled"; first match wins.
	Images []Image `json:"images"`
	// Isolation is "auto", "namespaces" or "none": how mount paths are made.
	Isolation string `json:"isolation"`
	// Arguments are added to a component's command line, by component name.
	Arguments map[string][]string `json:"arguments"`
	// KubeletQPS bounds the node's calls; 0 leaves the default of this program.
	KubeletQPS int `json:"kubelet_qps"`
	// ParentPID ends the cluster when its parent is no longer this process or
	// standard input reaches its end, whichever is noticed first. 0: never.
	ParentPID int `json:"parent_pid"`

	// Ports are chosen by the supervisor and kept over restarts of components.
	Ports Ports `json:"ports"`
}

// Capacity is what the node claims to have. It is not a property of the
// machine: it only decides what the scheduler places.
type Capacity struct {
	CPU              int    `json:"cpu"`
	Memory           string `json:"memory"`
	EphemeralStorage string `json:"ephemeral_storage"`
	Pods             int    `json:"pods"`
}

// Image says what stands for a container image on this machine.
type Image struct {
	// Pattern is a shell pattern over the image's name, tag included.
	Pattern string `json:"pattern"`
	// Path is put before the default PATH of the container.
	Path []string `json:"path"`
	// Env is the environment that the image defines.
	Env map[string]string `json:"env"`
	// Entrypoint and Command are the image's ENTRYPOINT and CMD.
	Entrypoint []string `json:"entrypoint"`
	Command    []string `json:"command"`
	// WorkDir is the image's WORKDIR; empty gives a scratch folder.
	WorkDir string `json:"workdir"`
}

// Ports on the loopback address.
type Ports struct {
	EtcdClient int `json:"etcd_client"`
	EtcdPeer   int `json:"etcd_peer"`
	APIServer  int `json:"apiserver"`
	Kubelet    int `json:"kubelet"`
}

// Address is the only address on which anything listens. It is the node's
// name as well: the kubelet takes an address from a node name that is one.
const Address = "127.0.0.1"

// Path joins names below the state folder.
func (c *Config) Path(names ...string) string {
	return filepath.Join(append([]string{c.State}, names...)...)
}

// Load reads state/config.json.
func Load(state string) (*Config, error) {
	data, err := os.ReadFile(filepath.Join(state, "config.json"))
	if err != nil {
		return nil, err
	}
	c := &Config{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return c, nil
}

// Save writes state/config.json.
func (c *Config) Save() error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.Path("config.json"), data, 0o600)
}
