// Command bench prints the figures of package conformance/bench and fails when
// one misses its limit. It is started by scripts/bench.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var o bench.Options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.Minibroker, "minibroker", "", "path of the minibroker binary")
	ids := flags.Int("ids", 10_000, "decided commits at the SIGKILL")
	flags.StringVar(&o.Participant, "participant", "", "path of the participants' binary in settle; -minibroker when empty")
	flags.BoolVar(&o.Bare, "bare", false, "settle: measure the participants without a coordinator as well")
	flags.BoolVar(&o.Kafka, "kafka", false, "real Kafka clusters as participants of settle, commit and skew")
	only := flags.String("only", "", "takeover, commit, skew or settle; all when empty")
	transactions := flags.Int("transactions", 200, "of skew")
	turn := flags.Duration("turn", 3*time.Second, "of commit: for how long one way is measured at a time")
	label := flags.String("label", "mini-brokers", "how to call the participants")
	if err = flags.Parse(args); err != nil {
		return err
	}
	if o.Minibroker == "" {
		return errors.New("-minibroker is missing: start scripts/bench, which builds it")
	}
	if o.Dir, err = os.MkdirTemp("", "kafka-gtc-bench-"); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(o.Dir)
		} else {
			err = fmt.Errorf("%w\nlogs: %s", err, o.Dir)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if *only == "" || *only == "takeover" {
		took, takeErr := bench.Takeover(ctx, o)
		if takeErr != nil {
			return takeErr
		}
		if _, err = fmt.Fprintf(out, "takeover: the id of a killed node was answered for after %v, the session timeout is %v\n", took.Round(time.Millisecond), bench.SessionTimeout); err != nil {
			return err
		}
	}
	if *only == "" || *only == "commit" {
		if err = printCommits(ctx, out, o, *label, *turn); err != nil {
			return err
		}
	}
	if *only == "" || *only == "skew" {
		if err = printSkew(ctx, out, o, *label, *transactions); err != nil {
			return err
		}
	}
	if *only != "" && *only != "settle" {
		return nil
	}
	s, err := bench.Settle(ctx, o, *ids)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "settle, two %s: %d commits decided, no participant told, SIGKILL: ready %v after the start, first answer %v, all told %v%s\n",
		*label, s.Ids, s.Ready.Round(time.Millisecond), s.Answer.Round(time.Millisecond), s.All.Round(time.Millisecond), bare(s))
	return err
}

// printCommits compares global transactions with the dual commit.
func printCommits(ctx context.Context, out io.Writer, o bench.Options, label string, turn time.Duration) error {
	const ring, turns = 4, 5
	clients := []int{1, 16}
	if o.Kafka { // on mini-brokers 64 wait too long for one another (README, differences)
		clients = append(clients, 64)
	}
	paces, err := bench.Commits(ctx, o, clients, ring, turns, turn)
	if err != nil {
		return err
	}
	var rival float64
	for _, p := range paces {
		if rival == 0 || p.Way == paces[0].Way {
			rival = p.PerSecond
		}
		if _, err = fmt.Fprintf(out, "commit, two %s, %2d clients, %-11s: %6.0f transactions/s, %.2f of the dual commit; %s\n",
			label, p.Clients, p.Way, p.PerSecond, p.PerSecond/rival, show(p.Latency)); err != nil {
			return err
		}
	}
	return nil
}

func show(s bench.Spread) string {
	const tick = 100 * time.Microsecond
	return fmt.Sprintf("median %v, 99 %% %v, longest %v", s.Median.Round(tick), s.P99.Round(tick), s.Max.Round(tick))
}

// printSkew says how far apart two clusters show a transaction.
func printSkew(ctx context.Context, out io.Writer, o bench.Options, label string, transactions int) error {
	v, err := bench.Skew(ctx, o, transactions)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "skew, two %s, %d transactions: between the readers of the two %s; from the answer to the second reader %s\n",
		label, v.Transactions, show(v.Skew), show(v.After))
	return err
}

func bare(s bench.Settled) string {
	if s.Bare == 0 {
		return ""
	}
	return fmt.Sprintf("; as many EndTxn without a coordinator %v", s.Bare.Round(time.Millisecond))
}
