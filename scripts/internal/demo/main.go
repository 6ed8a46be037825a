// Command demo shows one global transaction over two clusters, committed,
// aborted, and recovered after the coordinator was killed between its decision
// and the first message to a participant. It believes only what an independent
// read_committed consumer (segmentio/kafka-go) reads back.
//
// It is started by scripts/demo.
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

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

func main() {
	minibroker := flag.String("minibroker", "", "path of the minibroker binary")
	real := flag.Bool("kafka", false, "use two Apache Kafka 4.4.0 clusters as participants")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout, *minibroker, *real); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, minibroker string, real bool) error {
	if minibroker == "" {
		return errors.New("-minibroker is missing: start scripts/demo, which builds it")
	}
	dir, err := os.MkdirTemp("", "kafka-gtc-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	d := &demo{out: out, dir: dir, minibroker: minibroker}
	defer d.stopAll()
	if !real {
		return d.round(ctx, round{
			title:   "the mini-broker and a second, independent one",
			profile: client.TwoPhaseCommitAuto,
			start:   d.startEmbedded,
		})
	}
	for _, r := range []round{
		{title: "two Apache Kafka 4.4.0 clusters, stable APIs only (transaction.max.timeout.ms=2147483647)", profile: client.TwoPhaseCommitOff, start: d.startKafka(cluster.V44)},
		{title: "two Apache Kafka 4.4.0 clusters, InitProducerId v6 with Enable2Pc (KIP-939)", profile: client.TwoPhaseCommitOn, start: d.startKafka(cluster.V44TwoPC)},
	} {
		if err := d.round(ctx, r); err != nil {
			return err
		}
		d.stopAll()
	}
	return nil
}
