//go:build tools

// Package controlplane pins the Kubernetes and etcd that the tests run. The modules that Kubernetes develops in its own tree have no
// version there, so go.mod replaces each by the one published for the same release.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
