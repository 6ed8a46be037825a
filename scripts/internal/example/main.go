// Command example runs the use cases of global transactions, one subcommand
// each, over clusters that it starts itself, kills at random what can be killed,
// and believes only what an independent read_committed reader finds at the end.
//
// It is started by scripts/example.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// options are those of every example.
type options struct {
	out        io.Writer
	minibroker string // path of the binary
	self       string // path of this binary, for the processes of the application
	kafka      bool
	records    int
	instances  int
	kills      int // of instances; one of the coordinator for each four
	seed       uint64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(os.Stdout).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(exitCode(err))
	}
}

// command is the command line; each example adds itself.
func command(out io.Writer) *cobra.Command {
	o := &options{out: out}
	root := &cobra.Command{
		Use:           "example",
		Short:         "Use cases of global transactions, with counts read back from the clusters",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			var err error
			if o.self, err = os.Executable(); err != nil {
				return err
			}
			if o.seed == 0 {
				o.seed = uint64(time.Now().UnixNano() % 1_000_000)
			}
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&o.minibroker, "minibroker", "", "path of the minibroker binary")
	flags.BoolVar(&o.kafka, "kafka", false, "real Apache Kafka 4.4.0 clusters instead of mini-brokers")
	flags.IntVar(&o.instances, "instances", 3, "processes of the application")
	flags.IntVar(&o.kills, "kills", 4, "SIGKILLs of instances at random moments, and one of the coordinator for each four")
	flags.IntVar(&o.records, "records", 2000, "records to be processed")
	flags.Uint64Var(&o.seed, "seed", 0, "of the random choices; 0 draws one")
	root.AddCommand(ctpCommand(o), ctpInstanceCommand(), fanoutCommand(o), fanoutInstanceCommand(),
		mirrorCommand(o), mirrorInstanceCommand())
	return root
}

// limit is how long an example may take before it is given up.
const limit = 20 * time.Minute

// in runs an example in a world of its own. The directory with the logs stays
// when it fails.
func (o *options) in(ctx context.Context, names []string, run func(context.Context, *world) error) (err error) {
	if o.minibroker == "" {
		return errors.New("--minibroker is missing: start scripts/example, which builds it")
	}
	dir, err := os.MkdirTemp("", "kafka-gtc-example-")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w := newWorld(o, dir)
	defer func() {
		w.stop()
		if err != nil {
			err = fmt.Errorf("%w (logs: %s)", err, dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	if err := w.start(ctx, names); err != nil {
		return err
	}
	return run(ctx, w)
}

// exitError ends a process of the application with its code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return 1
}
