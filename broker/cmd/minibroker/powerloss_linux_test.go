package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/broker/internal/powertest"
)

// POWERLOSS_SEED says what is asked and where the power fails, POWERLOSS_CUTS
// how often; POWERLOSS_CUT takes one of the cuts alone, and POWERLOSS_KEEP a
// directory to leave its data in. A cut is so many events into a step, so that
// it is the same one in another run, unless what the node does by itself falls
// in between.
func envNumber(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestAPowerCutLosesNothingThatWasAnswered records a node under load, through a
// kill, a stop and the starts after them, and then lets the power fail at
// random moments. The disk has what was forced by then and, of every other
// write to any file or directory, what it happens to have. On that a node
// starts: all that was answered is there, what was asked and not answered is
// there or not, and a transaction is there as a whole or not at all.
func TestAPowerCutLosesNothingThatWasAnswered(t *testing.T) {
	seed := envNumber(t, "POWERLOSS_SEED", uint64(time.Now().UnixNano()))
	cuts := envNumber(t, "POWERLOSS_CUTS", 300)
	t.Logf("POWERLOSS_SEED=%d", seed)
	dir := filepath.Join(t.TempDir(), "data")
	r := record(t, dir, seed)
	t.Logf("%d steps, %d events", len(r.steps), r.disk.Events())
	images := inMemory(t)
	only := os.Getenv("POWERLOSS_CUT")
	failed := 0
	for n := range cuts {
		if only != "" {
			n = envNumber(t, "POWERLOSS_CUT", 0)
		}
		image := filepath.Join(images, "image")
		if keep := os.Getenv("POWERLOSS_KEEP"); keep != "" {
			image = filepath.Join(keep, fmt.Sprint("cut-", n))
		}
		if err := r.cut(t.Context(), image, seed, n); err != nil {
			t.Errorf("POWERLOSS_SEED=%d POWERLOSS_CUT=%d: %v", seed, n, err)
			if failed++; failed >= 5 {
				break
			}
		}
		if only != "" {
			break
		}
		if os.Getenv("POWERLOSS_KEEP") == "" {
			must(t, os.RemoveAll(image))
		}
	}
}

// recording is what was asked of a node, and what it did to its directory.
type recording struct {
	steps []step
	edges []int // the steps at which least has been forced: the first, and the last of each run
	disk  *powertest.Disk
}

var powerlossConfig = []string{
	"process.roles=broker,gtc", "global.transaction.state.log.num.partitions=2",
	"authorizer.class.name=" + config.StandardAuthorizer, "super.users=User:ANONYMOUS",
	"transaction.max.timeout.ms=2147483647",
	"log.segment.bytes=300", // a segment for every few records
}

// record runs a node three times: it is killed, it is stopped, it is killed.
func record(t *testing.T, dir string, seed uint64) *recording {
	t.Helper()
	l := &powerLoad{rng: rand.New(rand.NewPCG(seed, 0)), w: newWorld()}
	r := &recording{edges: []int{0}, disk: powertest.NewDisk(dir)}
	for run, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		trace := filepath.Join(t.TempDir(), "trace")
		args := []string{"--ready-file", filepath.Join(t.TempDir(), "ready"), "--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "log.dirs=" + dir}
		for _, line := range powerlossConfig {
			args = append(args, "--override", line)
		}
		command := powertest.Record(trace, append([]string{os.Args[0]}, args...)...)
		p := startBinary(t, command[0], command[1:]...)
		awaitFile(t, p, args[1])
		addr, err := os.ReadFile(args[1])
		if err != nil {
			t.Fatal(err)
		}
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", string(bytes.TrimSpace(addr)))
		if err != nil {
			t.Fatal(err)
		}
		c := newWireClient(conn)
		if l.c != nil {
			c.seq = l.c.seq // the producers go on
		}
		l.c = c
		if err := l.run(run); err != nil {
			t.Fatal(err)
		}
		p.signal(t, end)
		<-p.done
		_ = conn.Close()
		r.add(t, trace)
		r.edges = append(r.edges, len(l.steps)-1)
	}
	r.steps = l.steps
	return r
}

// run asks for a share of the steps.
func (l *powerLoad) run(number int) error {
	meta, err := oneRequest[*kmsg.MetadataResponse](l.c, 7, kmsg.NewPtrMetadataRequest())
	if err != nil {
		return err
	}
	l.id = *meta.ClusterID
	if number == 0 {
		if err := l.begin(); err != nil {
			return err
		}
	}
	for range 60 {
		next := l.transaction
		if l.rng.IntN(2) == 0 {
			next = l.admin
		}
		if err := next(); err != nil {
			return err
		}
	}
	return nil
}

// add reads the recording of a run that has ended.
func (r *recording) add(t *testing.T, trace string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(trace)
		must(t, err)
		if powertest.Ended(text) {
			must(t, r.disk.Add(bytes.NewReader(text)))
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the recording does not end")
		}
	}
}

// cut lets the power fail once and starts a node on what is left.
func (r *recording) cut(ctx context.Context, image string, seed, n uint64) error {
	rng := rand.New(rand.NewPCG(seed, n+1))
	which := rng.IntN(len(r.steps))
	if rng.IntN(4) == 0 {
		which = r.edges[rng.IntN(len(r.edges))]
	}
	at := r.steps[which]
	first, last := r.disk.Since(at.asked), r.disk.Events()
	if which+1 < len(r.steps) {
		last = r.disk.Since(r.steps[which+1].asked)
	}
	events := first + rng.IntN(last-first+1)
	if err := r.disk.Image(image, events, rng); err != nil {
		return err
	}
	k := &check{rng: rng, now: newWorld(), then: newWorld()}
	for i := range r.steps {
		s := &r.steps[i]
		switch told := s.told.Before(r.disk.Before(events)); {
		case told:
			s.change(k.now)
		case s.asked.Before(r.disk.Before(events)):
			k.under = s
		}
		if s.change(k.then); k.under != nil || !s.told.Before(r.disk.Before(events)) {
			break
		}
	}
	cfg, err := config.Parse("image", strings.NewReader(strings.Join(append(powerlossConfig,
		"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs="+image), "\n")), nil)
	if err != nil {
		return err
	}
	told := func(err error) error {
		if err == nil {
			return nil
		}
		under := "between two steps"
		if k.under != nil {
			under = k.under.name
		}
		return fmt.Errorf("%d events into step %q (%s): %w", events-first, at.name, under, err)
	}
	c, stop, err := startOn(ctx, cfg)
	if err != nil {
		return told(err)
	}
	k.c = c
	return told(errors.Join(k.run(), stop()))
}

// inMemory is a directory for images, which nothing has to outlive: forced to a
// disk they take ten times as long.
func inMemory(t *testing.T) string {
	t.Helper()
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "powerloss") //nolint:usetesting // t.TempDir is on a disk
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func awaitFile(t *testing.T, p *process, path string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		select {
		case <-p.done:
			t.Fatalf("ended before it served:\n%s", p.logged())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("does not serve:\n%s", p.logged())
		}
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
