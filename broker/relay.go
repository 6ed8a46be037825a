package broker

import (
	"bufio"
	"bytes"
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

// relay is one authentication that is passed on, token by token, to whoever
// knows the passwords: the embedded broker for SCRAM, the home cluster on a
// node that is gtc alone. PLAIN and SCRAM both can: neither is bound to the
// connection. The connection is for the handshake only, and nobody's afterwards.
type relay struct {
	net.Conn
	in        *bufio.Reader
	mechanism string
	tokens    int
	// embedded: a connection that ends without an answer is kfake's way to
	// refuse. Of a cluster it means that it cannot be asked.
	embedded bool
}

// relayed is what the other side says to one token.
type relayed struct {
	token    []byte
	complete bool
	lifetime time.Duration // of the session; 0: for ever
}

// mechanismError is a mechanism that the home cluster does not offer.
type mechanismError struct{ mechanisms []string }

func (e *mechanismError) Error() string {
	return fmt.Sprintf("the home cluster offers %v only", e.mechanisms)
}

// maxRelayed bounds what the other side answers.
const maxRelayed = 1 << 20

func (f *Front) startRelay(ctx context.Context, mechanism string) (*relay, error) {
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	r := &relay{mechanism: mechanism, embedded: f.opts.Embedded != nil}
	var err error
	switch {
	case r.embedded:
		r.Conn, err = f.opts.Embedded.dial(ctx, address("127.0.0.1:0"))
	case f.opts.DialHome != nil:
		r.Conn, err = f.opts.DialHome(ctx)
	default:
		err = errors.New("this node knows nobody to ask")
	}
	if err != nil {
		return nil, err
	}
	r.in = bufio.NewReader(r.Conn)
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Version, req.Mechanism = 1, mechanism
	resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
	if err = r.ask(ctx, req, resp); err == nil && resp.ErrorCode != 0 {
		err = kerr.ErrorForCode(resp.ErrorCode)
		if resp.ErrorCode == kerr.UnsupportedSaslMechanism.Code {
			err = &mechanismError{mechanisms: resp.SupportedMechanisms}
		}
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *relay) close() { r.Close() } //nolint:errcheck // nothing is left to do with it

// token passes one token on. A *credentialsError says that the client is
// refused, any other error that nobody could tell.
func (r *relay) token(ctx context.Context, token []byte) (relayed, error) {
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	r.tokens++
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.Version, req.SASLAuthBytes = 1, token
	resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	switch err := r.ask(ctx, req, resp); {
	case err == nil:
	case r.embedded && errors.Is(err, io.EOF) && ctx.Err() == nil:
		return relayed{}, &credentialsError{why: "refused by the embedded broker"}
	default:
		return relayed{}, err
	}
	if resp.ErrorCode == kerr.SaslAuthenticationFailed.Code {
		return relayed{}, &credentialsError{why: "refused by the home cluster"}
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return relayed{}, err
	}
	out := relayed{
		token: resp.SASLAuthBytes, complete: r.mechanism == mechanismPlain || r.tokens == 2,
		lifetime: time.Duration(resp.SessionLifetimeMillis) * time.Millisecond,
	}
	// The last word of SCRAM proves that the other side knows the password too.
	if out.complete && r.mechanism != mechanismPlain && !bytes.HasPrefix(out.token, []byte("v=")) {
		return relayed{}, &credentialsError{why: "no proof in the last message of SCRAM"}
	}
	return out, nil
}

// ask sends a request and reads its answer.
func (r *relay) ask(ctx context.Context, req kmsg.Request, resp kmsg.Response) error {
	stop := context.AfterFunc(ctx, r.close) // wakes what follows
	defer stop()
	if _, err := r.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 0)); err != nil {
		return errors.Join(err, ctx.Err())
	}
	prefix, err := r.in.Peek(sizeBytes)
	if err != nil {
		return errors.Join(err, ctx.Err())
	}
	if n := binary.BigEndian.Uint32(prefix); n > maxRelayed {
		return fmt.Errorf("an answer of %d bytes", n)
	}
	frame, err := readResponse(r.in)
	if err != nil {
		return errors.Join(err, ctx.Err())
	}
	return decodeResponse(frame, resp)
}
