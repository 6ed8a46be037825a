package durable_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// The test binary runs itself again as the broker that is to be killed.
const (
	envDir  = "DURABLE_TEST_BROKER_DIR"
	envAddr = "DURABLE_TEST_BROKER_ADDR"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		os.Exit(brokerProcess(dir, os.Getenv(envAddr)))
	}
	goleak.VerifyTestMain(m)
}

// brokerProcess serves until its standard input ends or it is killed.
func brokerProcess(dir, addr string) int {
	b, err := serve(dir, addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := fmt.Fprintln(os.Stdout, b.addr()); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// testBroker is the smallest front that does what the package asks of one:
// every request passes Journal.Request, kfake, Journal.Response.
type testBroker struct {
	ln      net.Listener
	inner   *pipeListener
	cluster *kfake.Cluster
	journal *durable.Journal

	mu    sync.Mutex
	conns map[net.Conn]bool
	wg    sync.WaitGroup
	once  sync.Once
}

func serve(dir, addr string) (*testBroker, error) {
	if _, err := durable.Repair(dir, time.Now(), zerolog.Nop()); err != nil {
		return nil, err
	}
	journal, err := durable.OpenJournal(dir, time.Now)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	b := &testBroker{
		ln: ln, journal: journal, conns: make(map[net.Conn]bool),
		inner: &pipeListener{addr: ln.Addr(), accept: make(chan net.Conn), done: make(chan struct{})},
	}
	b.cluster, err = kfake.NewCluster(
		kfake.NumBrokers(1), kfake.DataDir(dir), kfake.SyncWrites(),
		kfake.SeedTopics(3, "t"), kfake.SeedTopics(1, "source"),
		kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "2147483647"}),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return b.inner, nil }),
	)
	if err != nil {
		return nil, err
	}
	b.wg.Go(b.accept)
	return b, nil
}

func (b *testBroker) addr() string { return b.ln.Addr().String() }

// stop is a clean stop; a second one does nothing.
func (b *testBroker) stop() (err error) {
	b.once.Do(func() { err = b.stopOnce() })
	return err
}

func (b *testBroker) stopOnce() error {
	err := b.ln.Close()
	b.mu.Lock()
	for c := range b.conns {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.cluster.Close()
	b.wg.Wait()
	return errors.Join(err, b.journal.Close())
}

func (b *testBroker) accept() {
	for {
		client, err := b.ln.Accept()
		if err != nil {
			return
		}
		front, back := net.Pipe()
		select {
		case b.inner.accept <- back:
		case <-b.inner.done:
			_ = client.Close()
			return
		}
		b.mu.Lock()
		b.conns[client], b.conns[front] = true, true
		b.mu.Unlock()
		b.wg.Go(func() {
			_ = b.carry(client, front)
			_ = client.Close()
			_ = front.Close()
		})
	}
}

// answerLost is the transactional id of whose EndTxn the journal never sees an
// answer, as when a connection breaks.
const answerLost = "answer-lost"

// carry takes one request at a time to kfake and its answer back.
func (b *testBroker) carry(client, front net.Conn) error {
	for {
		frame, err := readFrame(client)
		if err != nil {
			return err
		}
		req := parseRequest(frame)
		if req != nil {
			if err = b.journal.Request(req); err != nil {
				return err
			}
		}
		if _, err = front.Write(frame); err != nil {
			return err
		}
		answer, err := readFrame(front)
		if err != nil {
			return err
		}
		if end, ok := req.(*kmsg.EndTxnRequest); ok && end.TransactionalID == answerLost {
			if err := b.journal.Response(req, nil); err != nil {
				return err
			}
		} else if req != nil {
			if err := b.journal.Response(req, parseResponse(req, answer)); err != nil {
				return err
			}
		}
		if _, err := client.Write(answer); err != nil {
			return err
		}
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// parseRequest reads the requests that the journal wants to see.
func parseRequest(frame []byte) kmsg.Request {
	body := frame[4:]
	key := kmsg.Key(binary.BigEndian.Uint16(body))
	if !slices.Contains([]kmsg.Key{kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn}, key) {
		return nil
	}
	req := kmsg.RequestForKey(int16(key))
	req.SetVersion(int16(binary.BigEndian.Uint16(body[2:])))
	clientID := max(int16(binary.BigEndian.Uint16(body[8:])), 0)
	body = body[10+clientID:]
	if req.IsFlexible() {
		body = body[1:] // no tags in a test
	}
	if err := req.ReadFrom(body); err != nil {
		panic(err)
	}
	return req
}

func parseResponse(req kmsg.Request, frame []byte) kmsg.Response {
	resp := req.ResponseKind()
	body := frame[8:]
	if resp.IsFlexible() {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		panic(err)
	}
	return resp
}

// pipeListener hands kfake the connections that the front makes.
type pipeListener struct {
	addr   net.Addr
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return l.addr }

// process is a broker in a process of its own.
type process struct {
	cmd   *exec.Cmd
	addr  string
	stdin io.Closer
}

// startProcess runs a broker on dir; addr may be empty for any port.
func startProcess(t *testing.T, dir, addr string) *process {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), envDir+"="+dir, envAddr+"="+addr)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &process{cmd: cmd, stdin: stdin}
	t.Cleanup(func() { p.kill(t) })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	must(t, err)
	p.addr = strings.TrimSpace(line)
	return p
}

// kill ends the process as a crash does, and waits until it is gone.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait() // says that it was killed
	_ = p.stdin.Close()
}

// startHere runs a broker on dir in this process, after a Repair.
func startHere(t *testing.T, dir, addr string) *testBroker {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	b, err := serve(dir, addr)
	must(t, err)
	t.Cleanup(func() { must(t, b.stop()) })
	return b
}

// repaired runs Repair and, a second time, checks that nothing is left to do.
func repaired(t *testing.T, dir string) durable.Report {
	t.Helper()
	report, err := durable.Repair(dir, time.Now(), zerolog.New(zerolog.NewTestWriter(t)))
	must(t, err)
	before := contents(t, dir)
	again, err := durable.Repair(dir, time.Now(), zerolog.Nop())
	must(t, err)
	if again.Changed {
		t.Errorf("a second Repair changed the directory: %v", differing(before, contents(t, dir)))
	}
	return report
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
