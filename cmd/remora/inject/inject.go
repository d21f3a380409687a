// Package inject has the command that adds the sidecar to Kubernetes manifests.
//
//	inject.go    the command
//	options.go   its options
//	manifest.go  reads manifests, and finds the pods in them
//	pod.go       what hinders a pod, and what is added to it
//	sidecar.go   the containers and volumes
//	edit.go      adds to the text of manifests
//	rbac.go      the role of the service accounts
package inject

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// New returns the command "remora inject".
func New() *cobra.Command {
	o := DefaultOptions()
	var rbac bool
	var namespace string
	cmd := &cobra.Command{
		Use:   "inject [FILE]",
		Short: "Add the sidecar to Kubernetes manifests",
		Long: "Read Kubernetes manifests from a file or from standard input (-), and write them with the sidecar added to each\n" +
			"pod: of a Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job, CronJob or Pod, also in a\n" +
			"List. All else stays as it is, and so does a pod that has the sidecar or the annotation\n" +
			Annotation + ": " + disabled + ". If one pod can't have the sidecar, nothing is written, and the exit code is 1.\n\n" +
			"The sidecar is a native one: Kubernetes 1.29 or later.",
		Example: "  kubectl create configmap remora --from-file remora.yaml\n" +
			"  remora inject web.yaml | kubectl apply -f -\n" +
			"  remora inject --rbac --namespace shop web.yaml | kubectl apply -f -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("expected one file, or none for standard input")
			}
			if namespace != "" && !rbac {
				return errors.New("--namespace is for --rbac")
			}
			return o.Check()
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, name, err := read(cmd.InOrStdin(), args)
			if err != nil {
				return err
			}
			var out []byte
			var pods []*Pod
			if rbac {
				out, pods, err = RBAC(text, namespace)
			} else {
				out, pods, err = Inject(text, &o)
			}
			if err != nil {
				return located(name, err)
			}
			if err := report(cmd.ErrOrStderr(), name, pods); err != nil {
				return err
			}
			_, err = raw(cmd.OutOrStdout()).Write(out)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Image, "image", o.Image, "image of the sidecar")
	f.StringVar(&o.PullPolicy, "image-pull-policy", o.PullPolicy, "Always, IfNotPresent or Never")
	f.StringVar(&o.Config, "config", o.Config, "ConfigMap that has the configuration as remora.yaml")
	f.StringVar(&o.TLS, "tls", o.TLS, "Secret with certificates and keys, whose files are in /tls")
	f.StringArrayVar(&o.Env, "env", nil, "environment variable of the sidecar, as NAME=VALUE; may be repeated")
	f.IntVar(&o.LinkPort, "link-port", 0, "port on which other sidecars reach this one")
	f.IntVar(&o.AdminPort, "admin-port", o.AdminPort, "port of admin.address in the configuration")
	f.BoolVar(&o.Drain, "drain", false, "as the pod begins to end, leave the registry and finish what is in flight; for providers")
	f.IntVar(&o.User, "proxy-uid", o.User, "user id of the sidecar")
	f.StringVar(&o.CPURequest, "cpu-request", o.CPURequest, "CPU that the sidecar requests")
	f.StringVar(&o.MemoryRequest, "memory-request", o.MemoryRequest, "memory that the sidecar requests")
	f.StringVar(&o.CPULimit, "cpu-limit", "", "limit of CPU of each container (default none)")
	f.StringVar(&o.MemoryLimit, "memory-limit", o.MemoryLimit, "limit of memory of the sidecar")
	f.BoolVar(&o.Intercept.On, "intercept", false, "redirect what the application sends to the sidecar, by another container with NET_ADMIN")
	f.StringVar(&o.Intercept.Image, "intercept-image", o.Intercept.Image, "image that runs scripts/intercept.sh")
	f.IntVar(&o.Intercept.Port, "intercept-port", o.Intercept.Port, "port of the listeners with transparent: true")
	f.StringVar(&o.Intercept.Ports, "ports", "", "redirect connections to these ports only, as 80,8000-8100")
	f.StringVar(&o.Intercept.ExcludePorts, "exclude-ports", "", "do not redirect connections to these ports")
	f.StringArrayVar(&o.Intercept.Exclude, "exclude", nil, "do not redirect connections to these addresses, as a CIDR; may be repeated")
	f.BoolVar(&o.Intercept.NoIPv6, "no-ipv6", false, "leave IPv6 alone, where the kernel has none")
	f.BoolVar(&rbac, "rbac", false, "write, in place of the manifests, what lets their service accounts use discover: kubernetes")
	f.StringVarP(&namespace, "namespace", "n", "", "namespace of manifests that name none; for --rbac")
	return cmd
}

// read returns the input, and its name for errors. Of a longer input than is allowed it returns one byte more.
func read(stdin io.Reader, args []string) (text []byte, name string, err error) {
	from := stdin
	name = "standard input"
	if len(args) == 1 && args[0] != "-" {
		file, err := os.Open(args[0])
		if err != nil {
			return nil, "", err
		}
		defer file.Close()
		from, name = file, args[0]
	}
	text, err = io.ReadAll(io.LimitReader(bufio.NewReader(from), maxInput+1))
	return text, name, err
}

// located puts the name of the input before each of the errors that are joined in err.
func located(name string, err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for i, e := range all {
		all[i] = fmt.Errorf("%s: %w", name, e)
	}
	return errors.Join(all...)
}

// report says what became of each pod.
func report(to io.Writer, name string, pods []*Pod) error {
	for _, p := range pods {
		line := fmt.Sprintf("%s: line %d: %s: %s", name, p.Line, p, p.Outcome)
		if p.Note != "" {
			line += "; " + p.Note
		}
		if _, err := fmt.Fprintln(to, line); err != nil {
			return err
		}
	}
	if len(pods) == 0 {
		_, err := fmt.Fprintf(to, "%s: no pod in it\n", name)
		return err
	}
	return nil
}

// raw returns what writes bytes as they are, unless a terminal shows them.
func raw(to io.Writer) io.Writer {
	if w, ok := to.(interface{ Raw() io.Writer }); ok {
		return w.Raw()
	}
	return to
}
