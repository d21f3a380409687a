package starter

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

//go:embed remora.yaml
var file []byte

// DefaultFile is the file that remora init writes if its command line names none.
const DefaultFile = "remora.yaml"

// NewInit returns the command "remora init".
func NewInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented configuration file",
		Long: "Write a commented configuration file, by default " + DefaultFile + ". It sends the requests to 127.0.0.1:15001\n" +
			"to an application at 127.0.0.1:8080, and shows as comments what can be added. A file that exists is not\n" +
			"touched.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := DefaultFile
			if len(args) > 0 {
				name = args[0]
			}
			if err := write(name); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s written. Put your application's address under endpoints, then: remora run -c %[1]s\n", name)
			return err
		},
	}
}

// write writes the file, which must not exist.
func write(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists, and is not overwritten; name another file", name)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(file)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(name) // a part of it would be in the way of the next try
	}
	return err
}
