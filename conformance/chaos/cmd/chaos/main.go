// Command chaos breaks the system round after round and judges what clients
// were told and readers saw; see package conformance/chaos. It is started by
// scripts/chaos.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"

	"github.com/kafka-gtc/kafka-gtc/conformance/chaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 2 && args[0] == "load" { // a client of our own
		return chaos.Load(ctx, args[1], in, out)
	}
	o := chaos.Options{Out: out}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&o.Minibroker, "minibroker", "", "path of the minibroker binary")
	flags.IntVar(&o.Rounds, "rounds", 100, "number of rounds")
	flags.Uint64Var(&o.Seed, "seed", rand.New(rand.NewPCG(uint64(os.Getpid()), 0)).Uint64()>>40, "chooses faults and their times")
	flags.IntVar(&o.Clients, "clients", 4, "number of clients")
	flags.IntVar(&o.Nodes, "nodes", 1, "coordinator nodes; with more than one the log is on a cluster of its own")
	flags.StringVar(&o.Fault, "fault", "", "the fault of every round, by its name in the output")
	flags.BoolVar(&o.KeepGoing, "keep-going", false, "go on after a round with anomalies")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case o.Minibroker == "":
		return errors.New("-minibroker is missing: start scripts/chaos, which builds it")
	case flags.NArg() > 0:
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	case o.Rounds < 1 || o.Clients < 1 || o.Nodes < 1:
		return errors.New("-rounds, -clients and -nodes must be 1 or more")
	}
	return chaos.Run(ctx, o)
}
