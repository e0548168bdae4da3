package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs etcd inside this process. It does not wait for the disk: a
// cluster for tests may lose its last writes with the machine.
func startEtcd(ctx context.Context, c *config.Config) (*embed.Etcd, error) {
	e := embed.NewConfig()
	e.Dir = c.Path("etcd")
	e.Name = "local"
	e.UnsafeNoFsync = true
	e.Logger = "zap"
	e.LogLevel = "warn"
	e.LogOutputs = []string{c.Path("logs", "etcd.log")}
	e.AutoCompactionMode = "periodic"
	e.AutoCompactionRetention = "10m"
	tls := transport.TLSInfo{
		CertFile:       c.Path("pki", "server.crt"),
		KeyFile:        c.Path("pki", "server.key"),
		TrustedCAFile:  c.Path("pki", "ca.crt"),
		ClientCertAuth: true,
	}
	e.ClientTLSInfo, e.PeerTLSInfo = tls, tls
	client := []url.URL{etcdURL(c.Ports.EtcdClient)}
	peer := []url.URL{etcdURL(c.Ports.EtcdPeer)}
	e.ListenClientUrls, e.AdvertiseClientUrls = client, client
	e.ListenPeerUrls, e.AdvertisePeerUrls = peer, peer
	e.InitialCluster = e.InitialClusterFromName(e.Name)
	server, err := embed.StartEtcd(e)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-server.Server.ReadyNotify():
		return server, nil
	case err := <-server.Err():
		return nil, fmt.Errorf("etcd: %w", err)
	case <-ctx.Done():
		server.Close()
		return nil, ctx.Err()
	case <-time.After(30 * time.Second):
		server.Close()
		return nil, fmt.Errorf("etcd is not ready after 30 seconds; see %s", c.Path("logs", "etcd.log"))
	}
}

func etcdURL(port int) url.URL {
	return url.URL{Scheme: "https", Host: fmt.Sprintf("%s:%d", config.Address, port)}
}
