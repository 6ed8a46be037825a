package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	idleConnections = 2000
	// memoryLimit is for the whole process, in bytes, at its peak.
	memoryLimit = 200_000_000
	// The hostile sender's largest request: Kafka's default of 100 MiB is in
	// memory twice by itself, here and in kfake.
	largestRequest = 8 << 20
)

// The command itself is measured, built without the race detector, on its peak
// (VmHWM): 2,000 clients that have asked for versions and metadata and are idle,
// and a sender of whatever takes memory, while ordinary clients are served.
func TestMemoryWithIdleConnectionsAndAHostileSender(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "minibroker")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Setenv("GOMEMLIMIT", "120MiB") // as whoever has that little would
	p := serveBinary(t, binary, t.TempDir(), "--log-level", "warn",
		"--override", "process.roles=broker,gtc", "--override", fmt.Sprintf("max.connections=%d", idleConnections+200),
		"--override", fmt.Sprintf("socket.request.max.bytes=%d", largestRequest))
	atRest := peakMemory(t, p)
	idle := make([]net.Conn, idleConnections)
	for i := range idle {
		idle[i] = connect(t, p)
		greet(t, idle[i])
	}
	withIdle := peakMemory(t, p)

	ordinary := connect(t, p)
	var slowest time.Duration
	var hostile sync.WaitGroup
	for _, frames := range hostileFrames() {
		for range 3 {
			hostile.Go(func() { hurl(p, frames, 6) })
		}
	}
	done := make(chan struct{})
	go func() { hostile.Wait(); close(done) }()
	for served, finished := 0, false; !finished || served < 20; served++ {
		began := time.Now()
		greet(t, ordinary)
		slowest = max(slowest, time.Since(began))
		select {
		case <-done:
			finished = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	peak := peakMemory(t, p)
	t.Logf("peak memory: %d MB at rest, %d MB with %d idle connections, %d MB with a hostile sender; an ordinary client waited %v at most",
		atRest/1e6, withIdle/1e6, idleConnections, peak/1e6, slowest.Round(time.Millisecond))
	if peak > memoryLimit {
		t.Errorf("%d bytes, at most %d are allowed", peak, memoryLimit)
	}
	for _, c := range idle {
		greet(t, c)
	}
}

// hostileFrames are what takes memory: a frame that announces much and comes,
// requests that are long, arrays of the smallest elements, and many requests of
// which nobody reads the answers.
func hostileFrames() map[string][]byte {
	header := func(size int, key, version int16) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(size))
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		return append(b, 0, 0, 0, 1, 0xff, 0xff, 0)
	}
	array := func(key, version int16, element []byte, total int) []byte {
		n := total / len(element)
		body := binary.AppendUvarint(nil, uint64(n+1))
		body = append(body, bytes.Repeat(element, n)...)
		body = append(body, make([]byte, 16)...)
		return append(header(11+len(body), key, version), body...)
	}
	produce := header(largestRequest, 0, 9)
	produce = append(produce, bytes.Repeat([]byte{1}, largestRequest+4-len(produce))...)
	return map[string][]byte{
		"a produce of the largest size": produce,
		"half of one":                   produce[:len(produce)/2],
		// Metadata v9: topics of an empty name and no tags.
		"many topics": array(3, 9, []byte{1, 0}, 512<<10-64),
		// DeleteTopics v6: a null name and a uuid.
		"many ids": array(20, 6, append([]byte{0}, make([]byte, 17)...), 512<<10-64),
		// DescribeConfigs v4: type, empty name, no keys, no tags.
		"many resources": array(32, 4, []byte{2, 1, 1, 0}, 512<<10-64),
		"answers unread": bytes.Repeat(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrMetadataRequest(), 1), 2000),
		"noise":          bytes.Repeat([]byte("\x00\x00\x10\x00"), 1<<16),
	}
}

// hurl sends the same on several connections, one after the other, and reads
// nothing.
func hurl(p *process, frames []byte, times int) {
	for range times {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(200 * time.Millisecond))
		_, _ = c.Write(frames)
		_, _ = c.Read(make([]byte, 1))
		_ = c.Close()
	}
}

func connect(t *testing.T, p *process) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// greet asks for what every client asks for first.
func greet(t *testing.T, c net.Conn) {
	t.Helper()
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.Version, versions.ClientSoftwareName, versions.ClientSoftwareVersion = 3, "test", "1"
	for _, req := range []kmsg.Request{versions, kmsg.NewPtrMetadataRequest()} {
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
			t.Fatal(err)
		}
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			t.Fatalf("an ordinary request is not answered: %v", err)
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
			t.Fatal(err)
		}
	}
}

var vmHWM = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

func peakMemory(t *testing.T, p *process) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := vmHWM.FindSubmatch(status)
	if m == nil {
		t.Fatalf("no VmHWM in\n%s", status)
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib * 1024
}
