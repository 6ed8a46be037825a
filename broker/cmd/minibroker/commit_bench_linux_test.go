package main

import (
	"strings"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// BenchmarkCommit is a commit at a participant, over two partitions, with and
// without group offsets: what the disk costs. Only the EndTxn is timed.
func BenchmarkCommit(b *testing.B) {
	for _, bench := range []struct {
		name, id string
		offsets  bool
	}{{"v5", "new", false}, {"v5_offsets", "new", true}, {"v4", "old", false}, {"v4_offsets", "old", true}} {
		b.Run(bench.name, func(b *testing.B) {
			cfg, err := config.Parse("bench", strings.NewReader(strings.Join(append(powerlossConfig,
				"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs="+b.TempDir()), "\n")), nil)
			must(b, err)
			c, stop, err := startOn(b.Context(), cfg)
			must(b, err)
			defer func() { must(b, stop()) }()
			l := &powerLoad{c: c, w: newWorld()}
			must(b, l.createTopic("t", 2, [2]string{}))
			must(b, l.initTransaction(bench.id))
			p := l.w.producer(bench.id)
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				for partition := range int32(2) {
					must(b, c.write(bench.id, p, "t", partition, "v"))
				}
				if bench.offsets {
					must(b, c.stage(bench.id, p, "g", "t", 1))
				}
				b.StartTimer()
				must(b, l.endTransaction(bench.id, true))
			}
		})
	}
}
