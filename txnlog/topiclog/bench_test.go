package topiclog

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

func benchLog(b *testing.B, opts ...kfake.Opt) *Log {
	b.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	l, err := Open(b.Context(), Options{
		ClientOpts: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)},
		Partitions: 1, ReplicationFactor: 1, MinInsyncReplicas: 1, Create: true, Logger: zerolog.Nop(), Clock: realClock{},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(l.Close)
	return l
}

// decision is a record of about 150 bytes.
func decision(i int) txnlog.Record {
	p := txnlog.Participant{ClusterID: "us", ProducerID: 4000, ProducerEpoch: 7, EndTxnVersion: 5, NextProducerID: -1}
	return txnlog.Record{
		GlobalTransactionalID: fmt.Sprintf("mirror-%d", i%10_000),
		Value:                 &txnlog.GlobalTransaction{State: txnlog.StatePrepareCommit, ClusterIDs: []string{"us"}, Participants: []txnlog.Participant{p}},
	}
}

// BenchmarkReplay reads 200,000 records in each iteration.
func BenchmarkReplay(b *testing.B) {
	const n, group = 200_000, 1000
	l := benchLog(b)
	w, err := l.Claim(b.Context(), 0, func(txnlog.Entry) error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := 0; i < n; i += group {
		var records []txnlog.Record
		for k := range group {
			records = append(records, decision(i+k))
		}
		wg.Add(1)
		w.Append(records, func(err error) {
			if err != nil {
				b.Error(err)
			}
			wg.Done()
		})
	}
	wg.Wait()
	b.SetBytes(l.Stats().Bytes)
	b.ResetTimer()
	for range b.N {
		got := 0
		w, err := l.Claim(b.Context(), 0, func(txnlog.Entry) error { got++; return nil })
		if err != nil || got != n {
			b.Fatalf("%d records, %v", got, err)
		}
		if err := w.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkAppend has a number of appenders, each waiting for its own append,
// on a store that forces every batch to disk.
func BenchmarkAppend(b *testing.B) {
	for _, appenders := range []int{1, 16, 64, 256} {
		b.Run(strings.Join([]string{"appenders", fmt.Sprint(appenders)}, "="), func(b *testing.B) {
			l := benchLog(b, kfake.DataDir(b.TempDir()), kfake.SyncWrites())
			w, err := l.Claim(b.Context(), 0, func(txnlog.Entry) error { return nil })
			if err != nil {
				b.Fatal(err)
			}
			tokens, errs := make(chan struct{}, appenders), make(chan error, 1)
			b.ResetTimer()
			for i := range b.N {
				tokens <- struct{}{}
				w.Append([]txnlog.Record{decision(i)}, func(err error) {
					if err != nil {
						select {
						case errs <- err:
						default:
						}
					}
					<-tokens
				})
			}
			for range appenders {
				tokens <- struct{}{}
			}
			select {
			case err := <-errs:
				b.Fatal(err)
			default:
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(float64(b.N)/float64(l.Stats().Batches), "appends/batch")
		})
	}
}
