package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"
)

// authority signs every certificate of one cluster. It is made anew with each
// new state folder and never leaves it.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// identity is a certificate to make: who it speaks for.
type identity struct {
	file         string
	name         string
	organization string
}

// What Kubernetes' authorizers make of these names:
// https://kubernetes.io/docs/setup/best-practices/certificates/
var identities = []identity{
	{"server", "local-cluster", ""},
	{"admin", "kubernetes-admin", "system:masters"},
	{"apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"},
	{"kube-controller-manager", "system:kube-controller-manager", ""},
	{"kube-scheduler", "system:kube-scheduler", ""},
	{"node", "system:node:" + config.Address, "system:nodes"},
}

// writeCertificates fills state/pki and the kubeconfigs unless they are there.
func writeCertificates(c *config.Config) error {
	dir := c.Path("pki")
	if _, err := os.Stat(filepath.Join(dir, "complete")); err == nil {
		return writeKubeconfigs(c)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ca, err := newAuthority(dir)
	if err != nil {
		return err
	}
	for _, id := range identities {
		if err := ca.issue(id); err != nil {
			return fmt.Errorf("certificate %s: %w", id.file, err)
		}
	}
	// The API server signs service account tokens with this key and checks them
	// with its public half.
	key, err := newKey(filepath.Join(dir, "service-account.key"))
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, "service-account.pub"), "PUBLIC KEY", public); err != nil {
		return err
	}
	if err := writeKubeconfigs(c); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "complete"), nil, 0o600)
}

func newAuthority(dir string) (*authority, error) {
	key, err := newKey(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	template := newTemplate("local-cluster-ca", "")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{dir, cert, key}, writePEM(filepath.Join(dir, "ca.crt"), "CERTIFICATE", der)
}

func (a *authority) issue(id identity) error {
	key, err := newKey(filepath.Join(a.dir, id.file+".key"))
	if err != nil {
		return err
	}
	template := newTemplate(id.name, id.organization)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses = []net.IP{net.ParseIP(config.Address), net.ParseIP(serviceIP)}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(a.dir, id.file+".crt"), "CERTIFICATE", der)
}

func newTemplate(name, organization string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	subject := pkix.Name{CommonName: name}
	if organization != "" {
		subject.Organization = []string{organization}
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
	}
}

func newKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(file, "EC PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// writeKubeconfigs writes state/kubeconfig for people and one file for each
// component. Certificates are inside, so that the files can be copied.
func writeKubeconfigs(c *config.Config) error {
	files := map[string]string{
		c.Path("kubeconfig"): "admin",
		c.Path("pki", "kube-controller-manager.kubeconfig"): "kube-controller-manager",
		c.Path("pki", "kube-scheduler.kubeconfig"):          "kube-scheduler",
		c.Path("pki", "node.kubeconfig"):                    "node",
	}
	for file, user := range files {
		var encoded [3]string
		for i, name := range []string{"ca.crt", user + ".crt", user + ".key"} {
			data, err := os.ReadFile(c.Path("pki", name))
			if err != nil {
				return err
			}
			encoded[i] = base64.StdEncoding.EncodeToString(data)
		}
		content := fmt.Sprintf(kubeconfig, encoded[0], config.Address, c.Ports.APIServer, user, user, encoded[1], encoded[2])
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: local-cluster
  cluster:
    certificate-authority-data: %s
    server: https://%s:%d
contexts:
- name: local-cluster
  context: {cluster: local-cluster, user: %s, namespace: default}
current-context: local-cluster
users:
- name: %s
  user:
    client-certificate-data: %s
    client-key-data: %s
`
