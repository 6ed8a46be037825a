// Command conformance tests an implementation of the role that KIP.md
// describes, and shows what it has found.
//
//	conformance --bootstrap-server HOST:PORT --participant us=HOST:PORT --participant eu=HOST:PORT
//	conformance --target FILE --html report.html
//	conformance list
//	conformance report --html report.html a.json b.json
//	conformance prove --readme conformance/README.md
//	conformance matrix --dir DIR --html report.html
//
// The last line is "N passed, N failed, N not applicable", and the exit code is 1
// when a case has failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := command().ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	if err != nil {
		stop()
		os.Exit(1) //nolint:gocritic // stopped above
	}
}

// errFailed says nothing more: what has failed stands in the table.
var errFailed = errors.New("cases have failed")

func command() *cobra.Command {
	root := runCommand()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.AddCommand(listCommand(), reportCommand(), proveCommand(), matrixCommand())
	return root
}
