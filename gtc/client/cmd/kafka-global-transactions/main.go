// Command kafka-global-transactions shows global transactions and ends those
// that stand still, as kafka-transactions.sh does for the transactions of one
// cluster, and compares what was decided with what is there.
//
//	kafka-global-transactions --bootstrap-server HOST:PORT list [--heuristic] [--state S]... [--older-than D] [--pattern RE]
//	kafka-global-transactions --bootstrap-server HOST:PORT describe ID...
//	kafka-global-transactions --bootstrap-server HOST:PORT abort|retry|forget ID
//	kafka-global-transactions --bootstrap-server HOST:PORT give-up ID --cluster CLUSTER_ID --gone-for-good
//	kafka-global-transactions --bootstrap-server HOST:PORT verify ID --participant NAME=HOST:PORT... --topic [NAME:]TOPIC...|--all-topics
//	kafka-global-transactions --bootstrap-server HOME_BROKER:PORT log --verify|--dump [--partition P]
//	kafka-global-transactions --bootstrap-server HOME_BROKER:PORT log --take-out ID --offset N
//	kafka-global-transactions --bootstrap-server HOME_BROKER:PORT log --accept-loss FIRST-LAST --partition P
//	kafka-global-transactions log --verify|--dump --dir DIRECTORY...
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
	"github.com/kafka-gtc/kafka-gtc/wire"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// timeout bounds one command.
const timeout = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if cmd, err := command().ExecuteContextC(ctx); err != nil {
		complain(os.Stderr, err)
		os.Exit(exitCode(cmd, err))
	}
}

// complain prints each of several errors on a line of its own. Nothing in them
// begins another line: ids and messages of others are plain when they are made.
func complain(out io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(out, "kafka-global-transactions:", plain.Text(strings.TrimSuffix(line, "\n"))) //nolint:errcheck // there is nobody else to tell
	}
}

func command() *cobra.Command {
	var bootstrap []string
	var commandConfig string
	var asJSON bool
	root := &cobra.Command{
		Use:           "kafka-global-transactions",
		Short:         "List and describe global transactions, and end those that stand still",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringSliceVar(&bootstrap, "bootstrap-server", nil, "host:port of any coordinator node (log: of any home broker); more after commas")
	root.PersistentFlags().StringVar(&commandConfig, "command-config", "", "file of client properties: security.protocol, sasl.*, ssl.*")
	root.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	connect := func() ([]string, []kgo.Opt, error) {
		if len(bootstrap) == 0 {
			return nil, nil, errors.New("--bootstrap-server is missing: host:port of a node")
		}
		access, err := readAccess(commandConfig)
		if err != nil {
			return nil, nil, fmt.Errorf("--command-config: %w", err)
		}
		return bootstrap, access, nil
	}
	with := func(f func(context.Context, *admin, []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			bootstrap, access, err := connect()
			if err != nil {
				return err
			}
			a, err := newAdmin(bootstrap, access, printer{out: cmd.OutOrStdout(), json: asJSON})
			if err != nil {
				return err
			}
			defer a.close()
			return f(ctx, a, args)
		}
	}
	root.AddCommand(listCommand(with), &cobra.Command{
		Use: "describe ID...", Short: "All that the coordinator knows of ids", Args: cobra.MinimumNArgs(1),
		RunE: with(func(ctx context.Context, a *admin, ids []string) error { return a.describe(ctx, ids) }),
	})
	for _, r := range []struct {
		verb, short string
		action      int8
	}{
		{"abort", "Abort an undecided transaction now, whatever its age", wire.ResolveAbort},
		{"retry", "Tell the pending participants again now", wire.ResolveRetry},
		{"forget", "Let an id with a heuristic outcome go on; mend the data first", wire.ResolveForget},
	} {
		root.AddCommand(&cobra.Command{
			Use: r.verb + " ID", Short: r.short, Args: cobra.ExactArgs(1),
			RunE: with(func(ctx context.Context, a *admin, ids []string) error { return a.resolve(ctx, ids[0], r.action, nil) }),
		})
	}
	root.AddCommand(giveUpCommand(with), logCommand(connect), verifyCommand(connect, &asJSON))
	return root
}

// readAccess reads a file of client properties; without one it is plain text.
func readAccess(path string) ([]kgo.Opt, error) {
	security, err := properties.LoadSecurity(path)
	if err != nil {
		return nil, err
	}
	access, err := security.Open()
	return access.ClientOpts(), err
}

// giveUpCommand cannot be undone by another command, so it wants a second flag.
func giveUpCommand(with func(func(context.Context, *admin, []string) error) func(*cobra.Command, []string) error) *cobra.Command {
	var cluster string
	var gone bool
	cmd := &cobra.Command{
		Use: "give-up ID --cluster CLUSTER_ID --gone-for-good", Short: "Wait no longer for a cluster that is gone for good; the outcome there counts as unknown", Args: cobra.ExactArgs(1),
		RunE: with(func(ctx context.Context, a *admin, ids []string) error {
			if !gone {
				return errors.New("a cluster that comes back completes by itself; if it never will, say so with --gone-for-good")
			}
			return a.resolve(ctx, ids[0], wire.ResolveGiveUp, &cluster)
		}),
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "cluster id of the participant, as describe shows it")
	cmd.Flags().BoolVar(&gone, "gone-for-good", false, "the cluster will never be back")
	if err := cmd.MarkFlagRequired("cluster"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func listCommand(with func(func(context.Context, *admin, []string) error) func(*cobra.Command, []string) error) *cobra.Command {
	req := wire.NewPtrListGlobalTransactionsRequest()
	var olderThan time.Duration
	var pattern string
	cmd := &cobra.Command{
		Use: "list", Short: "The ids of every coordinator node", Args: cobra.NoArgs,
		RunE: with(func(ctx context.Context, a *admin, _ []string) error {
			if olderThan > 0 {
				req.DurationFilterMillis = olderThan.Milliseconds()
			}
			if pattern != "" {
				req.PatternFilter = &pattern
			}
			return a.list(ctx, req)
		}),
	}
	cmd.Flags().StringArrayVar(&req.StateFilters, "state", nil, "only this state (Empty, Ongoing, PrepareCommit, ...); may be repeated")
	cmd.Flags().BoolVar(&req.HeuristicOnly, "heuristic", false, "only heuristic outcomes that nobody has forgotten")
	cmd.Flags().DurationVar(&olderThan, "older-than", 0, "only what has been undecided or pending for as long")
	cmd.Flags().StringVar(&pattern, "pattern", "", "only ids that match this regular expression (RE2) as a whole")
	return cmd
}
