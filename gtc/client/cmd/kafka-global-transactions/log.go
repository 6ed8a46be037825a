package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/topiclog"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// logFlags are what "log" is asked for.
type logFlags struct {
	dump, verify bool
	dirs         []string
	partition    int32
	takeOut      string
	offset       int64
	acceptLoss   string
}

const logHelp = `Reads the log of the coordinators, __global_transaction_state: on its home cluster
(--bootstrap-server names brokers of it, not coordinators), or in segment files
(--dir, once for each directory of a partition).

A partition is refused as a whole while one record of it cannot be trusted, since
what cannot be read must not be presumed aborted. In this order:

1. --verify says which id, or which offsets, and why. If another replica is whole
   (--verify --dir on its broker), make it the leader and delete the damaged one.
2. Else look on every participant how the id's last transaction ended
   (kafka-transactions.sh describe), and end by hand what is open.
3. --take-out ID --offset N gives the id a state of which it is not known how it
   ended. It is served again as a heuristic outcome, refused to its clients until
   "forget ID". All other ids are served as before.
4. Where a batch cannot be read, the ids in it are not known. --accept-loss FIRST-LAST
   --partition P lets the partition go on without it. What it decided may be
   presumed aborted from then on, so look at what is open on every participant first.

Both leave a record in the log that says who, when and why; --dump shows it. What
--verify reports as held by the leader and not served, or as lying at a wrong
offset, cannot be taken out: it has to be mended in the files of the broker.`

func logCommand(connect func() ([]string, []kgo.Opt, error)) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use: "log --dump|--verify|--take-out ID --offset N|--accept-loss FIRST-LAST --partition P", Short: "Look into the coordinators' log, and take out what keeps a partition from loading",
		Long: logHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(f.dirs) > 0 {
				return f.readFiles(cmd.OutOrStdout())
			}
			bootstrap, access, err := connect()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*timeout)
			defer cancel()
			l, err := topiclog.Attach(ctx, topiclog.Options{
				ClientOpts: append([]kgo.Opt{kgo.SeedBrokers(bootstrap...)}, access...), Logger: zerolog.Nop(), Clock: clock{}, NodeID: -1, Host: operator(),
			})
			if err != nil {
				return err
			}
			defer l.Close()
			return f.onCluster(ctx, l, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&f.dump, "dump", false, "print every record, those that do not count too, as JSON, one a line")
	cmd.Flags().BoolVar(&f.verify, "verify", false, "say why partitions would be refused; exit code 1 when one would")
	cmd.Flags().StringArrayVar(&f.dirs, "dir", nil, "directory of a partition with segment files, of a broker that is down or of a copy")
	cmd.Flags().Int32Var(&f.partition, "partition", -1, "this partition only")
	cmd.Flags().StringVar(&f.takeOut, "take-out", "", "id whose record cannot be trusted; its outcome counts as unknown from then on")
	cmd.Flags().Int64Var(&f.offset, "offset", -1, "offset of that record, as --verify says")
	cmd.Flags().StringVar(&f.acceptLoss, "accept-loss", "", "offsets that cannot be read, as --verify says, and that the partition goes on without")
	cmd.MarkFlagsOneRequired("dump", "verify", "take-out", "accept-loss")
	cmd.MarkFlagsMutuallyExclusive("dump", "verify", "take-out", "accept-loss")
	cmd.MarkFlagsMutuallyExclusive("dir", "take-out")
	cmd.MarkFlagsMutuallyExclusive("dir", "accept-loss")
	cmd.MarkFlagsRequiredTogether("take-out", "offset")
	return cmd
}

type clock struct{}

func (clock) Now() time.Time                         { return time.Now() }
func (clock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// operator is who is at work, for the trace in the log.
func operator() string {
	name := "an operator"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

func (f *logFlags) onCluster(ctx context.Context, l *topiclog.Log, out io.Writer) error {
	switch {
	case f.takeOut != "":
		if err := l.TakeOut(ctx, f.takeOut, f.offset, operator()); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%[1]s is taken out; its outcome counts as unknown until: kafka-global-transactions forget %[1]s\n", plain.Name(f.takeOut))
		return err
	case f.acceptLoss != "":
		first, last, err := f.stretch()
		if err != nil {
			return err
		}
		if err = l.AcceptLoss(ctx, f.partition, first, last, operator()); err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "partition %d goes on without offsets %d to %d\n", f.partition, first, last)
		return err
	}
	if f.partition >= l.Partitions() {
		return fmt.Errorf("the log has %d partitions", l.Partitions())
	}
	refused := 0
	for p := range l.Partitions() {
		if f.partition >= 0 && f.partition != p {
			continue
		}
		n, err := f.report(out, p, func(visit func(txnlog.RawRecord)) ([]error, error) { return l.Verify(ctx, p, visit) })
		if err != nil {
			return err
		}
		refused += n
	}
	return whole(refused)
}

func (f *logFlags) stretch() (first, last int64, err error) {
	from, to, _ := strings.Cut(f.acceptLoss, "-")
	first, firstErr := strconv.ParseInt(from, 10, 64)
	last, lastErr := strconv.ParseInt(to, 10, 64)
	if err := errors.Join(firstErr, lastErr); err != nil {
		return 0, 0, fmt.Errorf("--accept-loss is two offsets, FIRST-LAST, as --verify says them: %w", err)
	}
	if f.partition < 0 {
		return 0, 0, errors.New("--accept-loss wants --partition")
	}
	return first, last, nil
}

func (f *logFlags) readFiles(out io.Writer) error {
	refused := 0
	for _, dir := range f.dirs {
		_, number, _ := strings.Cut(filepath.Base(dir), txnlog.Topic+"-")
		partition, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			return fmt.Errorf("--dir %s: the name of a partition's directory is %s-NUMBER", plain.Name(dir), txnlog.Topic)
		}
		n, err := f.report(out, int32(partition), func(visit func(txnlog.RawRecord)) ([]error, error) {
			return topiclog.VerifyFiles(dir, int32(partition), visit)
		})
		if err != nil {
			return err
		}
		refused += n
	}
	return whole(refused)
}

func whole(refused int) error {
	if refused > 0 {
		return fmt.Errorf("%d reasons to refuse a partition; see log --help", refused)
	}
	return nil
}

// report reads a partition and prints its records, or what is wrong with it; it
// returns the number of reasons to refuse it.
func (f *logFlags) report(out io.Writer, partition int32, read func(visit func(txnlog.RawRecord)) ([]error, error)) (int, error) {
	records := 0
	var printErr error
	doubts, err := read(func(r txnlog.RawRecord) {
		records++
		if f.dump && printErr == nil {
			printErr = encode(out, describeRecord(partition, r))
		}
	})
	if err = errors.Join(err, printErr); err != nil {
		return 0, err
	}
	if f.verify && len(doubts) == 0 && records > 0 {
		_, err = fmt.Fprintf(out, "partition %d: %d records, nothing wrong\n", partition, records)
	}
	for _, doubt := range doubts {
		_, printErr := fmt.Fprintln(out, plain.Text(doubt.Error()))
		err = errors.Join(err, printErr)
	}
	return len(doubts), err
}

// record is what --dump says of one.
type record struct {
	Partition     int32
	Offset        int64
	ProducerID    int64
	ProducerEpoch int16
	ID            string                    `json:",omitempty"`
	Kind          string                    // global transaction, tombstone, claim, loss, or what is wrong
	State         *txnlog.GlobalTransaction `json:",omitempty"`
	Claim         *txnlog.Claim             `json:",omitempty"`
	FirstOffset   int64                     `json:",omitempty"`
	Loss          *txnlog.Loss              `json:",omitempty"`
}

func describeRecord(partition int32, raw txnlog.RawRecord) record {
	r := record{Partition: partition, Offset: raw.Offset, ProducerID: raw.ProducerID, ProducerEpoch: raw.ProducerEpoch, Kind: "tombstone"}
	key, err := txnlog.DecodeKey(raw.Key)
	r.ID, r.FirstOffset = key.GlobalTransactionalID, key.FirstOffset
	switch {
	case err != nil:
		r.Kind = err.Error()
		return r
	case raw.Value == nil:
		return r
	case key.Type == txnlog.TypeClaim:
		r.Kind = "claim"
		r.Claim, err = txnlog.DecodeClaim(raw.Value)
	case key.Type == txnlog.TypeLoss:
		r.Kind = "loss"
		r.Loss, err = txnlog.DecodeLoss(raw.Value)
	default:
		r.Kind = "global transaction"
		r.State, err = txnlog.DecodeValue(raw.Value)
	}
	if err != nil {
		r.Kind = err.Error()
	}
	return r
}
