package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// holder stands in front of a participant and passes everything on, but for
// EndTxn while it holds: to that it answers COORDINATOR_LOAD_IN_PROGRESS in the
// participant's place. So a coordinator can take every vote and make every
// decision, and no participant hears of one.
type holder struct {
	upstream string
	listener net.Listener
	holding  atomic.Bool
	held     atomic.Int64 // EndTxn answered in the participant's place
	passed   atomic.Int64 // EndTxn passed on
	conns    sync.WaitGroup
}

func newHolder(ctx context.Context, listen, upstream string) (*holder, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, err
	}
	h := &holder{upstream: upstream, listener: l}
	h.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.conns.Go(func() { h.serve(ctx, c) })
		}
	})
	return h, nil
}

func (h *holder) close() { _ = h.listener.Close() }

// serve carries one connection. turns are the answers owed, in order: nil for
// one that comes from upstream, and otherwise the answer itself.
func (h *holder) serve(ctx context.Context, down net.Conn) {
	defer func() { _ = down.Close() }()
	up, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.upstream)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	turns := make(chan []byte, 1024)
	var requests sync.WaitGroup
	requests.Go(func() {
		defer close(turns)
		defer func() { _ = up.Close() }()
		for {
			frame, readErr := readFrame(down)
			if readErr != nil {
				return
			}
			key, isEnd := int16(binary.BigEndian.Uint16(frame[4:])), false
			if key == kmsg.EndTxn.Int16() {
				if isEnd = h.holding.Load(); isEnd {
					h.held.Add(1)
				} else {
					h.passed.Add(1)
				}
			}
			if isEnd {
				turns <- refusal(frame)
				continue
			}
			turns <- nil
			if _, writeErr := up.Write(frame); writeErr != nil {
				return
			}
		}
	})
	for answer := range turns {
		if answer == nil {
			if answer, err = readFrame(up); err != nil {
				break
			}
		}
		if _, err := down.Write(answer); err != nil {
			break
		}
	}
	_ = down.Close()
	for range turns { // so that the reader is not stuck with an answer
	}
	requests.Wait()
}

// refusal is the answer to an EndTxn frame.
func refusal(frame []byte) []byte {
	version, correlation := int16(binary.BigEndian.Uint16(frame[6:])), frame[8:12]
	resp := kmsg.NewPtrEndTxnResponse()
	resp.Version, resp.ErrorCode = version, kerr.CoordinatorLoadInProgress.Code
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	answer := append(make([]byte, 4), correlation...)
	if resp.IsFlexible() {
		answer = append(answer, 0) // no tags in the header
	}
	answer = resp.AppendTo(answer)
	binary.BigEndian.PutUint32(answer, uint32(len(answer)-4))
	return answer
}

var errFrame = errors.New("bench: a frame of impossible size")

// readFrame returns a frame with its size.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > 100<<20 {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	frame := make([]byte, 4+n)
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
