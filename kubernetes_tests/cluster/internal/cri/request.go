package cri

import (
	"fmt"
	"path/filepath"
	"sort"
	"strings"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"
	"airflow-kubernetes-callbacks.invalid/cluster/internal/enter"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// request says how to start a command in the container. Volumes are at their
// mount path: bound there in a mount namespace or, without namespaces, by
// writing the volume's real folder wherever the mount path occurs in the
// command, the environment and the working folder.
func (c *container) request(command []string) enter.Request {
	request := enter.Request{
		Args: command, Env: c.environment(), Dir: c.workDir(c.dir),
		Namespaces: c.runtime.namespaces != nil, Root: filepath.Join(c.dir, "root"),
	}
	mounts := c.mounts()
	if request.Namespaces {
		for _, m := range mounts {
			request.Mounts = append(request.Mounts, enter.Mount{Source: m.HostPath, Target: m.ContainerPath, ReadOnly: m.Readonly})
		}
		return request
	}
	request.Dir = rewrite(request.Dir, mounts)
	for i := range request.Args {
		request.Args[i] = rewrite(request.Args[i], mounts)
	}
	for i, entry := range request.Env {
		name, value, _ := strings.Cut(entry, "=")
		request.Env[i] = name + "=" + rewrite(value, mounts)
	}
	return request
}

// mounts leaves out what the kubelet mounts over the files of an image: the
// machine's own name resolution is the right one here. Inner paths come last.
func (c *container) mounts() []*runtimeapi.Mount {
	var mounts []*runtimeapi.Mount
	for _, m := range c.config.Mounts {
		if m.ContainerPath != "/etc/hosts" && m.ContainerPath != "/etc/resolv.conf" && m.ContainerPath != "/etc/hostname" {
			mounts = append(mounts, m)
		}
	}
	sort.SliceStable(mounts, func(i, j int) bool { return mounts[i].ContainerPath < mounts[j].ContainerPath })
	return mounts
}

// environment is the image's and then the container's. The service "kubernetes"
// has no network behind it: its variables point at the API server itself.
func (c *container) environment() []string {
	values := map[string]string{
		"HOME":     filepath.Join(c.dir, "work"),
		"PATH":     strings.Join(append(append([]string{}, c.image.Path...), defaultPath), ":"),
		"HOSTNAME": c.sandbox.config.Hostname,
	}
	for name, value := range c.image.Env {
		values[name] = value
	}
	for _, e := range c.config.Envs {
		values[e.Key] = string(e.Value)
	}
	values["KUBERNETES_SERVICE_HOST"] = config.Address
	values["KUBERNETES_SERVICE_PORT"] = fmt.Sprint(c.runtime.config.Ports.APIServer)
	values["KUBERNETES_SERVICE_PORT_HTTPS"] = values["KUBERNETES_SERVICE_PORT"]
	list := c.marks().Environment()
	for name, value := range values {
		list = append(list, name+"="+value)
	}
	sort.Strings(list)
	return list
}

// rewrite puts the volume's folder for each occurrence of its mount path that
// is a whole path or the beginning of one.
func rewrite(text string, mounts []*runtimeapi.Mount) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		if m := mountAt(text, i, mounts); m != nil {
			out.WriteString(m.HostPath)
			i += len(m.ContainerPath)
			continue
		}
		out.WriteByte(text[i])
		i++
	}
	return out.String()
}

// mountAt finds the innermost mount whose path stands at this place of the text.
func mountAt(text string, at int, mounts []*runtimeapi.Mount) *runtimeapi.Mount {
	if text[at] != '/' || at > 0 && isPathByte(text[at-1]) {
		return nil
	}
	var found *runtimeapi.Mount
	for _, m := range mounts {
		end := at + len(m.ContainerPath)
		if strings.HasPrefix(text[at:], m.ContainerPath) && (end == len(text) || text[end] == '/' || !isPathByte(text[end])) {
			found = m
		}
	}
	return found
}

// isPathByte says whether a byte goes on with the name of a file.
func isPathByte(b byte) bool {
	return b == '/' || b == '.' || b == '_' || b == '-' || b == '+' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= 0x80
}
