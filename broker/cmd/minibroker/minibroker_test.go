package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestMain lets the test binary be the command: the tests are of the process,
// its signals and its exit code.
func TestMain(m *testing.M) {
	if os.Getenv("MINIBROKER") != "" {
		limitFiles(os.Getenv(fileLimit))
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process is a running command.
type process struct {
	cmd  *exec.Cmd
	addr string
	done chan struct{}
	mu   sync.Mutex
	log  bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startBinary(t, os.Args[0], args...)
}

func startBinary(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	p := &process{done: make(chan struct{})}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Env = append(os.Environ(), "MINIBROKER=1")
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the tests look at ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("the log of %v:\n%s", args, p.logged())
		}
	})
	return p
}

// serve starts a broker on dir and waits until it serves.
func serve(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return serveBinary(t, os.Args[0], dir, args...)
}

func serveBinary(t *testing.T, binary, dir string, args ...string) *process {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	p := startBinary(t, binary, append(args, "--ready-file", ready, "--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "log.dirs="+dir)...)
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(ready); err == nil {
			p.addr = strings.TrimSpace(string(text))
			return p
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

// exit waits for the end and gives the exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("does not end:\n%s", p.logged())
		return -1
	}
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (p *process) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(p.addr), kgo.AllowAutoTopicCreation()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func produce(t *testing.T, cl *kgo.Client, value string) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func endOffset(t *testing.T, cl *kgo.Client) int64 {
	t.Helper()
	offsets, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	o, _ := offsets.Lookup("t", 0)
	return o.Offset
}

func TestSignalsEndItCleanlyAndARestartFindsTheData(t *testing.T) {
	dir := t.TempDir()
	for i, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := serve(t, dir)
		cl := p.client(t)
		produce(t, cl, "a")
		if got := endOffset(t, cl); got != int64(i)+1 {
			t.Errorf("%d records, want %d", got, i+1)
		}
		// A fetch that waits for records is no reason to stay.
		consumer := p.client(t, kgo.ConsumeTopics("t"), kgo.FetchMinBytes(1<<20), kgo.FetchMaxWait(500*time.Millisecond))
		go consumer.PollFetches(t.Context())
		p.signal(t, s)
		if code := p.exit(t); code != 0 {
			t.Errorf("%v: exit code %d:\n%s", s, code, p.logged())
		}
	}
}

func TestAnOpenTransactionSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir)
	cl := p.client(t, kgo.TransactionalID("tid"))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, "a")
	before, err := kadm.NewClient(cl).DescribeTransactions(t.Context(), "tid")
	if err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGKILL)
	p.exit(t)

	p = serve(t, dir)
	again := p.client(t)
	after, err := kadm.NewClient(again).DescribeTransactions(t.Context(), "tid")
	if err != nil {
		t.Fatal(err)
	}
	b, a := before["tid"], after["tid"]
	if a.State != "Ongoing" || a.ProducerID != b.ProducerID || a.ProducerEpoch != b.ProducerEpoch {
		t.Fatalf("after the kill %+v, before %+v", a, b)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.Version, end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = 5, "tid", b.ProducerID, b.ProducerEpoch, true
	resp, err := end.RequestWith(t.Context(), again)
	if err != nil || resp.ErrorCode != 0 {
		t.Fatalf("commit after the restart: %+v %v", resp, err)
	}
	committed := p.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if rs := committed.PollFetches(t.Context()).Records(); len(rs) != 1 || string(rs[0].Value) != "a" {
		t.Errorf("committed %v", rs)
	}
}

func TestASecondProcessOnTheSameDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	first := serve(t, dir)
	second := start(t, "--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "log.dirs="+dir)
	if code := second.exit(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if log := second.logged(); !strings.Contains(log, "held by process "+strconv.Itoa(first.cmd.Process.Pid)) {
		t.Errorf("the log does not name the holder:\n%s", log)
	}
	produce(t, first.client(t), "still served")
}

func TestTheAddressInUseIsNamed(t *testing.T) {
	first := serve(t, t.TempDir())
	second := start(t, "--override", "listeners=PLAINTEXT://"+first.addr, "--override", "log.dirs="+t.TempDir())
	if code := second.exit(t); code != 1 || !strings.Contains(second.logged(), first.addr) || !strings.Contains(second.logged(), "listeners") {
		t.Errorf("exit code %d:\n%s", code, second.logged())
	}
}

func TestABrokenFileIsExplainedLineByLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(file, []byte("# mine\nnum.partitons=3\nnode.id=x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, file, "--override", "log.level=loud")
	if code := p.exit(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	log := p.logged()
	for _, want := range []string{
		file + ":2: num.partitons: unknown key; did you mean num.partitions?",
		file + ":3: node.id: ", "--override: log.level: ",
	} {
		if !strings.Contains(strings.ReplaceAll(log, `\"`, `"`), want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
	for line := range strings.Lines(log) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON, and not on a terminal: %s", line)
		}
	}
}

func TestTheReadyLineTellsTheAddress(t *testing.T) {
	p := serve(t, t.TempDir(), "--log-level", "info")
	var line struct {
		Level, Message, Address, Advertised, Roles string
		ClusterID                                  string `json:"cluster_id"`
		Fsync                                      bool
	}
	if err := json.Unmarshal([]byte(lineWith(p.logged(), `"ready"`)), &line); err != nil {
		t.Fatalf("%v:\n%s", err, p.logged())
	}
	if line.Address != p.addr || line.Advertised != p.addr || line.Roles != "broker" || len(line.ClusterID) != 22 || !line.Fsync {
		t.Errorf("%+v", line)
	}
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

func TestHelpAndEffectiveConfigurationAreOnStandardOutput(t *testing.T) {
	for arg, want := range map[string]string{"--help-config": "transaction.two.phase.commit.enable (boolean", "--print-config": "num.partitions=9"} {
		cmd := exec.Command(os.Args[0], arg, "--override", "num.partitions=9")
		cmd.Env = append(os.Environ(), "MINIBROKER=1")
		out, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", arg, err, out)
		}
	}
}

func TestClosersRunLastFirstAndAllOfThem(t *testing.T) {
	var order []string
	var c closers
	for _, name := range []string{"a", "b", "c"} {
		c.add(func() error { order = append(order, name); return errors.New(name) })
	}
	err := c.close()
	if got := fmt.Sprint(order); got != "[c b a]" || err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("%s %v", got, err)
	}
}
