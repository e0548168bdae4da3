package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"
)

// lowestPort is the lowest port that is chosen for a component.
const lowestPort = 10000

// choosePorts chooses a free port for each component that has none. They are
// below the ports that the kernel gives to outgoing connections: between the
// choice and the listening, and while the API server is down, such a connection
// could take the port.
func choosePorts(c *config.Config) error {
	highest := firstEphemeralPort()
	c.Ports.APIServer = c.APIServerPort
	for _, port := range []*int{&c.Ports.EtcdClient, &c.Ports.EtcdPeer, &c.Ports.Kubelet, &c.Ports.APIServer} {
		if port == &c.Ports.APIServer && *port != 0 {
			continue
		}
		listener, err := listenBelow(highest)
		if err != nil {
			return err
		}
		// All listeners stay open until every port is chosen: no port twice.
		defer listener.Close()
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	return nil
}

func listenBelow(highest int) (net.Listener, error) {
	for range 1000 {
		port := lowestPort + rand.IntN(highest-lowestPort)
		if listener, err := net.Listen("tcp", net.JoinHostPort(config.Address, strconv.Itoa(port))); err == nil {
			return listener, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d", lowestPort, highest)
}

// firstEphemeralPort reads where the ports of outgoing connections begin.
func firstEphemeralPort() int {
	const usual = 32768
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return usual
	}
	var first, last int
	if _, err := fmt.Sscan(string(data), &first, &last); err != nil || first <= lowestPort {
		return usual
	}
	return first
}
