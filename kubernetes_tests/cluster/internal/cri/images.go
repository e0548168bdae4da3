package cri

import (
	"context"
	"fmt"
	"path"
	"strings"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images answers for the images of the configured table: they are always
// present. No other image exists.
type Images struct{ config *config.Config }

var _ internalapi.ImageManagerService = &Images{}

// NewImages returns the images that the configuration names.
func NewImages(c *config.Config) *Images { return &Images{c} }

// findImage returns the first entry that matches the name, with or without the
// tag "latest" that the kubelet adds.
func findImage(c *config.Config, name string) *config.Image {
	name = strings.TrimPrefix(name, "docker.io/")
	names := []string{name, strings.TrimSuffix(name, ":latest")}
	for i := range c.Images {
		for _, candidate := range names {
			if matched, _ := path.Match(c.Images[i].Pattern, candidate); matched {
				return &c.Images[i]
			}
		}
	}
	return nil
}

// ImageStatus says whether an image is present.
func (i *Images) ImageStatus(_ context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	if findImage(i.config, image.Image) == nil {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{
		Id: imageID(image.Image), RepoTags: []string{image.Image}, Size: 1,
	}}, nil
}

// PullImage succeeds for what is present and fails as containerd fails for what
// its registry does not have.
func (i *Images) PullImage(_ context.Context, image *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if findImage(i.config, image.Image) == nil {
		return "", status.Errorf(codes.NotFound,
			"failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", image.Image, image.Image, image.Image)
	}
	return imageID(image.Image), nil
}

func imageID(name string) string { return fmt.Sprintf("local://%s", name) }

// ListImages lists nothing, so that nothing is collected as garbage.
func (i *Images) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return nil, nil
}

// RemoveImage has nothing to remove.
func (i *Images) RemoveImage(context.Context, *runtimeapi.ImageSpec) error { return nil }

// ImageFsInfo says that images use nothing.
func (i *Images) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	usage := []*runtimeapi.FilesystemUsage{{
		Timestamp: now(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: i.config.State},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}

// Close has nothing to close.
func (i *Images) Close(context.Context) error { return nil }
