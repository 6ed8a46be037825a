package main

import (
	"context"
	"fmt"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fileLimit names the environment variable with the most bytes that a file of
// the process may have. Beyond, a write fails: a full disk without a disk.
const fileLimit = "MINIBROKER_FILE_LIMIT"

func limitFiles(bytes string) {
	if bytes == "" {
		return
	}
	n, err := strconv.ParseUint(bytes, 10, 64)
	if err == nil {
		signal.Ignore(syscall.SIGXFSZ) // then the write gives EFBIG
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n})
	}
	if err != nil {
		panic(err)
	}
}

func (p *process) endsBecauseOfTheDisk(t *testing.T) {
	t.Helper()
	if code := p.exit(t); code == 0 {
		t.Error("exit code 0 after a failed write")
	}
	if !strings.Contains(p.logged(), "the data directory cannot be written") || !strings.Contains(p.logged(), "file too large") {
		t.Errorf("the log does not say why:\n%s", p.logged())
	}
}

func TestAFullDiskEndsTheNodeAndLosesNothingThatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(fileLimit, "100000")
	p := serve(t, dir)
	cl := p.client(t, kgo.RecordRetries(0), kgo.RequestRetries(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.DisableIdempotentWrite()) // an idempotent producer asks until it knows
	acknowledged := int64(0)
	for {
		err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: make([]byte, 9000)}).FirstErr()
		if err != nil {
			break
		}
		if acknowledged++; acknowledged > 20 {
			t.Fatal("more was acknowledged than the file can hold")
		}
	}
	p.endsBecauseOfTheDisk(t)
	t.Setenv(fileLimit, "")
	p = serve(t, dir)
	if got := endOffset(t, p.client(t)); got != acknowledged || got == 0 {
		t.Errorf("%d records after the restart, %d were acknowledged", got, acknowledged)
	}
}

// The log of what producers there are is not a partition: kfake answers as if it
// had been written.
func TestAFullDiskGivesOutNoProducerThatIsForgotten(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(fileLimit, "4000")
	p := serve(t, dir)
	last, ended := "", p.done
	var pid int64
	for i := range 100 {
		id := fmt.Sprintf("a-transactional-id-of-some-length-%d", i)
		cl := p.client(t, kgo.TransactionalID(id), kgo.RequestRetries(0))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		go func() {
			select {
			case <-ended:
				cancel()
			case <-ctx.Done():
			}
		}()
		got, _, err := cl.ProducerID(ctx)
		cancel()
		if err != nil {
			break
		}
		last, pid = id, got
	}
	p.endsBecauseOfTheDisk(t)
	t.Setenv(fileLimit, "")
	p = serve(t, dir)
	cl := p.client(t, kgo.TransactionalID(last))
	again, epoch, err := cl.ProducerID(t.Context())
	if err != nil || last == "" || again != pid || epoch == 0 {
		t.Errorf("%q is %d/%d after the restart, was %d: %v", last, again, epoch, pid, err)
	}
}

func TestAFullDiskStopsDecisionsAndNoneIsForgotten(t *testing.T) {
	clusters := twoEmbedded(t)
	w := newCrashWorld(t, clusters)
	t.Setenv(fileLimit, "20000")
	doomed := w.start(t)
	w.commitUntilItEnds(t, doomed, nil, func() {
		doomed.endsBecauseOfTheDisk(t)
		t.Setenv(fileLimit, "")
	})
}

// SIGTERM in the middle of commits: what is decided is answered or found again,
// and what is not is decided after the restart.
func TestSIGTERMUnderLoadForgetsNoDecision(t *testing.T) {
	clusters := twoEmbedded(t)
	w := newCrashWorld(t, clusters)
	doomed := w.start(t)
	w.commitUntilItEnds(t, doomed, func(committed int) {
		if committed == 5 {
			doomed.signal(t, syscall.SIGTERM)
		}
	}, func() {
		if code := doomed.exit(t); code != 0 {
			t.Errorf("exit code %d:\n%s", code, doomed.logged())
		}
	})
}

// commitUntilItEnds commits one global transaction after the other until the
// coordinator ends, starts it again, and finishes the one that was under way.
// Every one that was told to be committed is visible on both clusters.
func (w *crashWorld) commitUntilItEnds(t *testing.T, doomed *process, after func(committed int), ended func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c, err := openRaw(ctx, w.addr, w.id, w.clusters, 60_000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	committed := 0
	for over := false; !over; {
		if err = c.write(ctx, w.topic, "v", "us", "eu"); err != nil {
			t.Fatal(err)
		}
		answer := make(chan error, 1)
		go func() { answer <- c.commitAndAdopt(ctx) }()
		if after != nil {
			after(committed)
		}
		select {
		case err = <-answer:
		case <-doomed.done:
			over = true
			ended()
			w.start(t)
			err = <-answer // the client asks on, and learns what became of it
		}
		if err != nil {
			t.Fatal(err)
		}
		if committed++; committed > 5000 {
			t.Fatal("the coordinator does not end")
		}
	}
	for name, cluster := range w.clusters {
		if got := visibleOn(t, cluster, w.topic); len(got) != committed {
			t.Errorf("%s shows %d, %d were told to be committed", name, len(got), committed)
		}
	}
	t.Logf("%d global transactions, one of them over the restart", committed)
}

// commitAndAdopt commits the open transaction and lets the producers know.
func (c *rawClient) commitAndAdopt(ctx context.Context) error {
	r, err := c.endUntilDecided(ctx, true)
	if err != nil {
		return err
	}
	if r.ErrorCode != 0 || r.Outcome != 1 {
		return fmt.Errorf("code %d, outcome %d", r.ErrorCode, r.Outcome)
	}
	for name := range c.refs {
		if err := c.producers[name].EndTransaction(ctx, kgo.TryCommit); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	c.sequence++
	return nil
}
