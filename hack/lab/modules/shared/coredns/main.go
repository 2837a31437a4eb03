// CoreDNS as it is, with the plugins that hack/lab/cluster/coredns.yaml uses and those by which tests resolve names of other
// clusters (hack/testbed/workerclusters.py), and no other: those drag in every cloud's libraries. In which order plugins answer
// does not depend on which are here.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	coremain.Run()
}
