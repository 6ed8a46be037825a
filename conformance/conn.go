package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is one connection, on which one request is under way at a time. The
// versions are those that the requests have: nothing is negotiated.
type conn struct {
	net.Conn
	correlation int32
}

func dial(ctx context.Context, addr string, s *Security) (*conn, error) {
	raw, err := s.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw}
	if s != nil && s.SASL != nil {
		if err = c.login(ctx, addr, s); err != nil {
			_ = raw.Close()
			return nil, err
		}
	}
	return c, nil
}

func (c *conn) login(ctx context.Context, addr string, s *Security) error {
	hello := kmsg.NewPtrSASLHandshakeRequest()
	hello.Version, hello.Mechanism = 1, s.SASL.Name()
	resp, err := c.roundTrip(ctx, hello)
	if err != nil {
		return err
	}
	if code := resp.(*kmsg.SASLHandshakeResponse).ErrorCode; code != 0 {
		return kerr.ErrorForCode(code)
	}
	session, token, err := s.SASL.Authenticate(ctx, addr)
	for done := false; err == nil && !done; {
		auth := kmsg.NewPtrSASLAuthenticateRequest()
		auth.Version, auth.SASLAuthBytes = 1, token
		if resp, err = c.roundTrip(ctx, auth); err != nil {
			return err
		}
		answer := resp.(*kmsg.SASLAuthenticateResponse)
		if answer.ErrorCode != 0 {
			return kerr.ErrorForCode(answer.ErrorCode)
		}
		done, token, err = session.Challenge(answer.SASLAuthBytes)
	}
	return err
}

func (c *conn) roundTrip(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	c.correlation++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("conformance")).AppendRequest(nil, req, c.correlation)
	body, err := c.exchange(ctx, frame)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("%w: the header of the answer has tags", errAnswer)
		}
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

var errAnswer = errors.New("conformance: the answer is none")

// exchange sends a frame and returns the answer behind its correlation id.
func (c *conn) exchange(ctx context.Context, frame []byte) ([]byte, error) {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.Write(frame); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	size, correlation := binary.BigEndian.Uint32(head[:]), binary.BigEndian.Uint32(head[4:])
	if size < 4 || size > 100<<20 || correlation != binary.BigEndian.Uint32(frame[8:]) {
		return nil, fmt.Errorf("%w: %d bytes with correlation id %d", errAnswer, size, correlation)
	}
	body := make([]byte, size-4)
	_, err := io.ReadFull(c, body)
	return body, err
}
