package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
)

// serveControl listens on state/control.sock. The launcher asks there for what
// kubectl cannot do: losing the node, killing the API server.
func (s *supervisor) serveControl() error {
	// The working folder is the state folder: the name stays short.
	os.Remove("control.sock")
	listener, err := net.Listen("unix", "control.sock")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", s.status)
	command := func(path string, do func() error) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := do(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	command("/stop", func() error { s.stop(); return nil })
	command("/node/lose", func() error { s.kill(nodeName); return nil })
	command("/node/restore", func() error {
		if err := s.start(nodeName); err != nil {
			return err
		}
		return waitForNode(context.Background(), s.config)
	})
	command("/node/wait", func() error { return waitForNode(context.Background(), s.config) })
	command("/apiserver/stop", func() error { s.kill(apiserverName); return nil })
	command("/apiserver/start", func() error {
		if err := s.start(apiserverName); err != nil {
			return err
		}
		return waitForAPIServer(context.Background(), s.config)
	})
	mux.HandleFunc("POST /evict", s.evict)
	go http.Serve(listener, mux)
	return nil
}

func (s *supervisor) status(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	components := map[string]int{"supervisor": os.Getpid()}
	for name, running := range s.children {
		components[name] = running.process.Pid
	}
	json.NewEncoder(w).Encode(map[string]any{
		"ready":      s.ready,
		"components": components,
		"kubeconfig": s.config.Path("kubeconfig"),
		"server":     "https://" + etcdURL(s.config.Ports.APIServer).Host,
	})
}

// evict has the node evict a pod, and answers when that is done.
func (s *supervisor) evict(w http.ResponseWriter, r *http.Request) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", "node.sock")
		},
	}}
	target := url.URL{Scheme: "http", Host: "node", Path: r.URL.Path, RawQuery: r.URL.RawQuery}
	response, err := client.Post(target.String(), "", nil)
	if err == nil {
		response.Body.Close()
		err = waitForEviction(r.Context(), s.config, r.URL.Query().Get("namespace"), r.URL.Query().Get("pod"))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
